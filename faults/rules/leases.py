"""I2: at most one valid lease at a time, and reports are accepted from its holder only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from faults.changes import BEAT, CANCEL, CLAIMS, COMPLETE, FAIL, REAP, RELEASE, SNOOZE, TOUCH, JobChange
from faults.evidence import Evidence, Execution, Step
from faults.history import COMPLETED
from faults.violations import Violation

ONE_LEASE = "a lease begins after the end of the one before it"
SAME_HOLDER = "a lease stays with its holder and its run"
NOT_BEFORE_IT_EXPIRED = "a lease is reaped after it expired"
REPORT_OF_HOLDER = "a report is accepted from the holder only"
HOLDER_STARTED = "a report is accepted for a run that its worker started"
HOLDER_FAILED = "a failure is accepted for a run whose handler failed"
STARTED_UNDER_LEASE = "a handler starts with a claim of its own"
STARTED_ONCE = "a claim starts one handler"

# The holder ends it, or a cancel does. A reap does neither: it has to wait for the expiry.
_ENDS = frozenset({COMPLETE, FAIL, SNOOZE, RELEASE, CANCEL})


def check_leases(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        executions = evidence.executions.get(job_id, [])
        yield from _check_intervals(life)
        for verb, change in life:
            if verb in (COMPLETE, FAIL, SNOOZE):
                yield from _check_report(evidence, verb, change, executions)
        yield from _check_starts(evidence, job_id, life, executions)
    for job_id in evidence.executions.keys() - evidence.lives.keys():
        what = f"A handler was started for job {job_id}, which was never in the table."
        yield Violation("I2", STARTED_UNDER_LEASE, what, job_id)


def _check_intervals(life: list[Step]) -> Iterator[Violation]:
    """A lease is valid from its claim until its holder or a cancel ends it, or it expires."""
    valid_until, holder = 0, ""
    for verb, change in life:
        old, new = change.old, change.new
        if verb in CLAIMS:
            if change.at < valid_until:
                what = f"{_name(change)} got a lease while that of {holder} was valid for another "
                what += f"{(valid_until - change.at) / 1e6:.3f} s."
                yield _violation(ONE_LEASE, what, change)
        elif verb in (BEAT, TOUCH) and old is not None and new is not None:
            if (old.locked_by, old.run) != (new.locked_by, new.run):
                what = f"The lease of {old.locked_by}, run {old.run}, became that of {_name(change)}."
                yield _violation(SAME_HOLDER, what, change)
        elif verb == REAP:
            assert old is not None
            if old.lease_until is not None and change.statement_at <= old.lease_until:
                what = f"{holder} was reaped {(old.lease_until - change.statement_at) / 1e6:.3f} s too early."
                yield _violation(NOT_BEFORE_IT_EXPIRED, what, change)
        elif verb in _ENDS:
            valid_until = 0
        if new is not None and new.lease_until is not None:
            valid_until, holder = new.lease_until, _name(change)


def _check_report(
    evidence: Evidence, verb: str, change: JobChange, executions: list[Execution]
) -> Iterator[Violation]:
    assert change.old is not None
    assert change.new is not None
    worker, run = change.old.locked_by, change.old.run
    if change.new.finished_by not in (None, worker):
        what = f"{change.new.finished_by} ended the job, which {worker} held."
        yield _violation(REPORT_OF_HOLDER, what, change)
    started = [
        execution
        for execution in executions
        if execution.is_of(change.old) and evidence.clock.earliest(execution.t) <= change.at
    ]
    if not started:
        what = f"A report was accepted for run {run} of {worker}, which had not started it."
        yield _violation(HOLDER_STARTED, what, change)
    elif verb == FAIL and not any(_failed_before(evidence, execution, change.at) for execution in started):
        what = f"A failure was accepted for run {run} of {worker}, whose handler had not failed."
        yield _violation(HOLDER_FAILED, what, change)


def _failed_before(evidence: Evidence, execution: Execution, at: int) -> bool:
    if execution.ended is None or execution.outcome == COMPLETED:
        return False
    return evidence.clock.earliest(execution.ended) <= at


def _check_starts(
    evidence: Evidence, job_id: str, life: list[Step], executions: list[Execution]
) -> Iterator[Violation]:
    """A start after the completion is judged by another rule."""
    claims = [(change.new, change.at) for verb, change in life if verb in CLAIMS and change.new is not None]
    completed_at = next((change.at for verb, change in life if verb == COMPLETE), None)
    starts: Counter[tuple[str, int]] = Counter()
    for execution in executions:
        moment = evidence.clock.latest(execution.t)
        # More than one only if the job was deleted and stored again.
        claimed = sum(execution.is_of(claim) and at <= moment for claim, at in claims)
        if not claimed:
            what = f"{execution.worker} started run {execution.run}, which it had never claimed."
            yield Violation("I2", STARTED_UNDER_LEASE, what, job_id, at=moment)
        elif completed_at is None or moment <= completed_at:
            starts[execution.worker, execution.run] += 1
            if starts[execution.worker, execution.run] > claimed:
                what = f"{execution.worker} started run {execution.run} again."
                yield Violation("I2", STARTED_ONCE, what, job_id, at=moment)


def _name(change: JobChange) -> str:
    return "no worker" if change.new is None else f"{change.new.locked_by}, run {change.new.run},"


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I2", rule, what, change.job_id, at=change.at, seq=change.seq)
