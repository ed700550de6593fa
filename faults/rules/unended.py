"""I31: nothing ends that no report, no operator and no bound ended.

That a job ends only so is shown by I2, I4 and I7. Here: a worker stops a handler only when its claim is over.
A message to the worker is no reason by itself, as anyone may have sent it.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.evidence import Evidence, Execution
from faults.history import CANCELLED
from faults.violations import Violation

STOPPED_WITH_ITS_CLAIM = "a handler is stopped only when its claim is over"

# A worker that cannot reach its server stops its handlers when the lease is over: the longest is 8 s.
_LEASE_NS = 10 * 10**9
# A worker whose heartbeats are late stops a little before its lease is over, in microseconds. On a busy
# machine that needs no fault; a worker that gets its answers has most of a lease left.
_MARGIN = 500_000
_ANSWERED = 1_000_000
# The shortest time limit that operators of a run set. No handler takes as long by itself.
_TIME_LIMIT_NS = 79 * 10**8


def check_stopped(evidence: Evidence) -> Iterator[Violation]:
    for job_id, executions in evidence.executions.items():
        for run in executions:
            if run.outcome != CANCELLED or run.ended is None or run.ended - run.t >= _TIME_LIMIT_NS:
                continue
            if not any(reason(evidence, run) for reason in (_is_over, _has_expired, _has_excuse)):
                what = f"{run.worker} stopped run {run.run}, and its claim was not over."
                at = evidence.clock.latest(run.ended)
                yield Violation("I31", STOPPED_WITH_ITS_CLAIM, what, job_id, at=at)


def _is_over(evidence: Evidence, run: Execution) -> bool:
    """Whether the claim had ended before, or the change that ended it was under way."""
    assert run.ended is not None
    stopped = evidence.clock.latest(run.ended)
    return any(
        change.old is not None
        and run.is_of(change.old)
        and (change.new is None or not run.is_of(change.new))
        and change.statement_at <= stopped
        for _, change in evidence.lives.get(run.job_id, ())
    )


def _has_expired(evidence: Evidence, run: Execution) -> bool:
    """Whether the lease was over or nearly so, as far as the worker knew.

    It may not have got the answers to its last heartbeats yet.
    """
    assert run.ended is not None
    stopped = evidence.clock.latest(run.ended)
    leases = [
        (change.committed or change.at, change.new.lease_until or 0)
        for _, change in evidence.lives.get(run.job_id, ())
        if change.new is not None and run.is_of(change.new) and change.at <= stopped
    ]
    if any(granted <= stopped - _ANSWERED and lease > stopped + _MARGIN for granted, lease in leases):
        return False
    return any(lease <= stopped + _MARGIN for _, lease in leases)


def _has_excuse(evidence: Evidence, run: Execution) -> bool:
    """Whether the worker ended, or may have been unable to keep its lease."""
    assert run.ended is not None
    begin = run.ended - _LEASE_NS
    return bool(
        evidence.disturbances.of_worker(run.worker, begin, run.ended)
        or evidence.disturbances.of_database(begin, run.ended)
    )
