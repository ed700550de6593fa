"""I13: a job that is lost with its workers again and again is a dead letter after a few of them."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import REAP, REDRIVE
from faults.evidence import Evidence
from faults.violations import Violation

MAX_CRASHES = 5  # the default of the servers; no policy of a run changes it
CRASHES_ARE_BOUNDED = "a job has no more lost leases than max_crashes before it is a dead letter"
CRASHES_ARE_COUNTED = "a lost lease of a started attempt is counted, and nothing else is"


def check_crashes(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        lost = 0
        for verb, change in life:
            old, new = change.old, change.new
            if verb == REDRIVE:
                lost = 0
            elif verb == REAP and old is not None and old.delivered:
                lost += 1
                if lost > MAX_CRASHES:
                    what = f"The job was lost for the {lost}th time."
                    yield Violation("I13", CRASHES_ARE_BOUNDED, what, job_id, at=change.at, seq=change.seq)
            if new is not None and new.crashes != lost:
                what = f"After a {verb} the job has {new.crashes} crashes; {lost} leases were lost."
                yield Violation("I13", CRASHES_ARE_COUNTED, what, job_id, at=change.at, seq=change.seq)
