"""I23: the result that a waiter gets is the one that is stored, and that the completing handler returned."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import COMPLETE, JobChange
from faults.evidence import Evidence, Request
from faults.history import COMPLETED
from faults.violations import Violation

IS_THE_HANDLERS = "the stored result is what the handler of the completing run returned"
IS_STORED = "a result that was returned to a waiter is the one that is stored"
HAS_HAPPENED = "a waiter gets a status that its job had by then"


def check_results(evidence: Evidence) -> Iterator[Violation]:
    completing = {
        job_id: change for job_id, life in evidence.lives.items() for verb, change in life if verb == COMPLETE
    }
    for job_id, change in completing.items():
        if job_id in evidence.audit.statuses:  # else it was deleted with its result
            yield from _check_stored(evidence, change)
    for request in evidence.requests["await"]:
        if request.how == "done":
            yield from _check_answer(evidence, request, completing.get(request.facts["job_id"]))


def _check_stored(evidence: Evidence, change: JobChange) -> Iterator[Violation]:
    assert change.old is not None
    returned = [
        run.result
        for run in evidence.executions.get(change.job_id, ())
        if run.is_of(change.old) and run.outcome == COMPLETED
    ]
    stored = evidence.audit.results.get(change.job_id)
    if returned and stored not in returned:
        what = f"Its handler returned {returned[-1]!r:.80}, and {stored!r:.80} is stored."
        yield Violation("I23", IS_THE_HANDLERS, what, change.job_id, at=change.at, seq=change.seq)


def _check_answer(evidence: Evidence, request: Request, change: JobChange | None) -> Iterator[Violation]:
    job_id, status = request.facts["job_id"], request.answer["status"]
    assert request.ended is not None
    answered_at = evidence.clock.latest(request.ended)
    had = {
        step.change.new.status
        for step in evidence.lives.get(job_id, ())
        if step.change.new is not None and step.change.statement_at <= answered_at
    }
    if status not in had:
        what = f"{request.who} was answered {status}, which the job was not by then."
        yield Violation("I23", HAS_HAPPENED, what, job_id)
    elif status == "COMPLETED" and change is not None and job_id in evidence.audit.statuses:
        got, stored = request.answer.get("result"), evidence.audit.results.get(job_id)
        if got != stored:
            what = f"{request.who} got {got!r:.80}, and {stored!r:.80} is stored."
            yield Violation("I23", IS_STORED, what, job_id, at=change.at, seq=change.seq)
