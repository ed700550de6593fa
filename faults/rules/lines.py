"""I19: a lane with work and room is in line, and the counts of limits agree with what runs."""

from __future__ import annotations

from collections.abc import Iterator

from faults.evidence import Evidence
from faults.violations import Violation

IN_LINE = "a lane with work and room is in line"
COUNTS_AGREE = "the counts of limits agree with what runs"


def check_lines(evidence: Evidence) -> Iterator[Violation]:
    for event in evidence.events:
        if event.what == "stranded":
            topic, lane = event.facts["topic"], event.facts["lane"]
            what = f"Lane {lane} of {topic} had work and room, and nothing would have served it."
            yield Violation("I19", IN_LINE, what, at=evidence.clock.earliest(event.t))
        elif event.what == "repaired":
            pools, lanes = event.facts["pools"], event.facts["lanes"]
            what = f"A sweep counted {pools} pools and {lanes} lanes anew."
            yield Violation("I19", COUNTS_AGREE, what, at=evidence.clock.earliest(event.t))
