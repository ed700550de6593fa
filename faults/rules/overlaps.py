"""I15: no occurrence of a schedule that does not overlap makes a job while one of its jobs is unfinished."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from faults.changes import JobChange
from faults.evidence import Evidence, Step
from faults.violations import Violation

NO_OVERLAP = "no occurrence makes a job while one of its schedule is unfinished"

_FOR_EVER = 1 << 62


def check_overlaps(evidence: Evidence) -> Iterator[Violation]:
    """Of the jobs that occurrences have made. The first end of each counts: it may be retried later."""
    alone = {change.schedule_id for change in evidence.audit.schedules if change.overlap != "allow"}
    by_hand = evidence.asked["schedule_fire"]
    fires: defaultdict[str, list[JobChange]] = defaultdict(list)
    for job_id, life in evidence.lives.items():
        first = life[0].change
        if first.schedule_id in alone and job_id not in by_hand:
            fires[first.schedule_id].append(first)
    for changes in fires.values():
        changes.sort(key=lambda change: change.at)
        for one, other in itertools.pairwise(changes):
            if _finished_at(evidence.lives[one.job_id]) > other.at:
                what = "An occurrence made a job while the one before it was unfinished."
                yield Violation(
                    *("I15", NO_OVERLAP, what, other.job_id),
                    schedule_id=other.schedule_id,
                    at=other.at,
                    others=(one.job_id,),
                )


def _finished_at(life: list[Step]) -> int:
    for step in life:
        new = step.change.new
        if new is None or new.status in ("COMPLETED", "DEAD_LETTERED", "CANCELED"):
            return step.change.at
    return _FOR_EVER
