"""I25: a job that is ready is claimed in time while a worker that wants it has a free slot, and then starts.

The bound is 10 s, and twice the longest statement and the longest stall of a process of that time. A claim
that its worker released without a start does not count. But it shows that the worker had a slot: several of
them within the bound, of workers without a fault, are a violation as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from faults.availability import Availability
from faults.evidence import Evidence
from faults.spans import SECOND
from faults.violations import Violation
from faults.waits import Wait

CLAIMED_IN_TIME = "a ready job is claimed within 10 s while a worker that wants it has a free slot"
CLAIMED_TO_START = "a job that is claimed is not released again and again"

PROGRESS = 10 * SECOND
# A job may come to a worker that turns out to be too slow for it, and then to another one.
_MOST_RELEASES = 3


def exceeds(availability: Availability, bound: int, begin: int, end: int) -> bool:
    """Whether that time is longer than the bound, and what the slowness of the time adds to it."""
    return end - begin > bound and end - begin > bound + 2 * availability.slowest(begin, end)


def check_moving(evidence: Evidence) -> Iterator[Violation]:
    last = max((change.at for change in evidence.audit.jobs), default=0)
    for wait in evidence.waits:
        if min(wait.end, last) - wait.begin > PROGRESS:
            yield from _check_wait(evidence.availability, wait, last)


def _check_wait(availability: Availability, wait: Wait, last: int) -> Iterator[Violation]:
    """At most one violation for each wait."""
    in_the_way = availability.topic(wait.topic) | availability.locked(wait.job_id)
    for begin, end in in_the_way.gaps(wait.begin, min(wait.end, last)):
        if not exceeds(availability, PROGRESS, begin, end):
            continue
        passed = next(_chances(availability, wait, begin, end), None)
        releases = _releases(availability, wait, begin, end)
        if passed is not None:
            rule, what = CLAIMED_IN_TIME, f"while {passed} had a free slot, and nothing stood in the way"
        elif releases > _MOST_RELEASES:
            rule, what = CLAIMED_TO_START, f"and was claimed and released {releases} times"
        else:
            continue
        seq = wait.claim.seq if wait.claim else None
        what = f"It waited for {(end - begin) / SECOND:.3f} s, {what}."
        yield Violation("I25", rule, what, wait.job_id, at=end, seq=seq)
        return


def _chances(availability: Availability, wait: Wait, begin: int, end: int) -> Iterator[str]:
    """The workers that could have claimed the job for longer than the bound."""
    for worker_id in availability.workers:
        if wait.topic in availability.topics(worker_id):
            gaps = availability.taken(worker_id).gaps(begin, end)
            if any(exceeds(availability, PROGRESS, *gap) for gap in gaps):
                yield worker_id


def _releases(availability: Availability, wait: Wait, begin: int, end: int) -> int:
    """How many claims of workers without a fault were released."""
    return sum(
        begin <= stretch.end <= end
        and availability.worker(stretch.claimed_by).clear_since(later.begin) <= begin
        for stretch, later in pairwise(wait.stretches)
        if stretch.claimed_by
    )
