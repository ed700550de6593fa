"""I1: an expired lease is reaped within a bounded time, whatever callers send.

Judged only where a server, its connections, the database and its rows had no fault all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faults.changes import REAP
from faults.evidence import Evidence, Step
from faults.violations import Violation

REAPED_IN_TIME = "an expired lease is reaped in time"

# After an outage a watchdog waits one lease; on a busy machine it may be late.
_LEASES, _SLACK = 2, 5 * 10**6


def check_reaps(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        for place, (verb, change) in enumerate(life):
            old = change.old
            if verb != REAP or old is None or old.lease_until is None:
                continue
            extended_at = _extended_at(life[:place], old.lease_until)
            if extended_at is None:
                continue  # the history is not whole, or not in order: that is I7
            late = change.statement_at - old.lease_until
            bound = _LEASES * (old.lease_until - extended_at) + _SLACK
            begin, end = evidence.clock.about(old.lease_until), evidence.clock.about(change.statement_at)
            if late > bound and evidence.disturbances.is_calm(begin - (end - begin), end):
                what = (
                    f"The lease expired {late / 1e6:.3f} s before it was reaped, without a fault in between."
                )
                yield Violation("I1", REAPED_IN_TIME, what, job_id, at=change.at, seq=change.seq)


def _extended_at(life: Sequence[Step], lease_until: int) -> int | None:
    """When the lease was given or extended to this. Another rank in its lane changes a job as well."""
    given = (
        change.at
        for _, change in reversed(life)
        if change.old is None or change.old.lease_until != lease_until
    )
    return next(given, None)
