"""I12: a job that has not started by its start_by never starts, until an operator retries it."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import CLAIMS
from faults.evidence import Evidence
from faults.violations import Violation

STARTED_IN_TIME = "no attempt starts after start_by"


def check_start_limits(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        for verb, change in life:
            old = change.old
            if old is None or old.start_by is None or old.attempts > 0:
                continue
            if verb in CLAIMS and change.statement_at > old.start_by:
                late = (change.statement_at - old.start_by) / 1e6
                what = f"It was claimed {late:.3f} s after the time in which it may start."
                yield Violation("I12", STARTED_IN_TIME, what, job_id, at=change.at, seq=change.seq)
