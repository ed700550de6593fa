"""I4 and I5: a COMPLETED job has run, and does not run again."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import COMPLETE, DELETE, JobChange
from faults.evidence import Evidence, Execution, Step
from faults.history import COMPLETED
from faults.violations import Violation

RAN_AT_ALL = "a COMPLETED job's handler was started before"
RAN_TO_ITS_END = "a COMPLETED job's handler returned, or completed it"
NO_START_AFTER_END = "no handler starts after the completion"


def check_completed_ran(evidence: Evidence) -> Iterator[Violation]:
    """I4."""
    for job_id, life in evidence.lives.items():
        for verb, change in life:
            if verb != COMPLETE:
                continue
            before = [
                execution
                for execution in evidence.executions.get(job_id, ())
                if evidence.clock.earliest(execution.t) <= change.at
            ]
            if not before:
                rule, what = RAN_AT_ALL, "The job was completed, but no handler had been started for it."
            elif not any(
                _is_done_before(evidence, execution, change.at) for execution in _of_holder(before, change)
            ):
                rule, what = RAN_TO_ITS_END, "The job was completed, but its handler had not returned."
            else:
                continue
            yield Violation("I4", rule, what, job_id, at=change.at, seq=change.seq)


def _of_holder(executions: list[Execution], change: JobChange) -> list[Execution]:
    """The executions of the completed claim, not those of a zombie. All, if the claim was never started."""
    assert change.old is not None
    return [each for each in executions if each.is_of(change.old)] or executions


def _is_done_before(evidence: Evidence, execution: Execution, at: int) -> bool:
    done = execution.ended if execution.outcome == COMPLETED else None
    moments = (moment for moment in (done, execution.completing) if moment is not None)
    return any(evidence.clock.earliest(moment) <= at for moment in moments)


def check_none_started_after_completion(evidence: Evidence) -> Iterator[Violation]:
    """I5. The completion counts from its statement on. There is no excuse."""
    for job_id, executions in evidence.executions.items():
        for execution in executions:
            completed_at = _completed_before(evidence, evidence.lives.get(job_id, []), execution)
            if completed_at is not None:
                moment = evidence.clock.earliest(execution.t)
                what = f"{execution.worker} started attempt {execution.attempt} at least "
                what += f"{(moment - completed_at) / 1e6:.6f} s after the job was completed."
                yield Violation("I5", NO_START_AFTER_END, what, job_id, at=moment)


def _completed_before(evidence: Evidence, life: list[Step], execution: Execution) -> int | None:
    """Return when the job was completed, if it certainly was before the handler started."""
    completed_at = None
    for verb, change in life:
        if verb == COMPLETE and change.at < evidence.clock.earliest(execution.t):
            completed_at = change.at
        elif verb == DELETE and change.at <= evidence.clock.latest(execution.t):
            completed_at = None  # it was retried
    return completed_at
