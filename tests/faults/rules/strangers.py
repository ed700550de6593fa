"""I25: a user who serves no topic stops none. What such a user declares and holds has numbers of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tests.faults.evidence import Evidence
from tests.faults.spans import SECOND
from tests.faults.violations import Violation

GOVERNS_NOTHING = "a user without a worker of a topic neither limits nor holds it"

# No other user declares these, and no other hold is as long.
LIMIT, STARTS, HELD_FOR = 17, 13, timedelta(days=364)
_LONG = 24 * 3600 * SECOND


def check_strangers(evidence: Evidence) -> Iterator[Violation]:
    for event in evidence.audit.flow:
        facts = event.facts or {}
        if event.what != "turnstile":
            continue
        if facts.get("max_running") == LIMIT or facts.get("starts") == STARTS:
            what = f"{event.name} has the limit that a user who does not serve it declared."
        elif event.moment is not None and event.moment - event.at > _LONG:
            what = f"{event.name} is held for {(event.moment - event.at) // _LONG} days by such a user."
        else:
            continue
        yield Violation("I25", GOVERNS_NOTHING, what, at=event.at)
