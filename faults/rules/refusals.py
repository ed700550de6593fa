"""I32: a change that was refused changed nothing.

A call is repeated if its answer was lost, and may be refused because of its own success. So only those are
judged whose success is no reason to refuse a repeat; and of workflows, that a retry brings jobs back together
with the workflow, whatever the answer was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from faults.changes import REDRIVE, ScheduleChange, WorkflowChange
from faults.evidence import Evidence, Request
from faults.rules.workflows import is_of_its_workflow
from faults.violations import Violation

CHANGED_NOTHING = "a refused change of a schedule changed nothing"
BACK_TOGETHER = "a retry brings jobs back only together with their workflow"

# These may edit a schedule. A repeat of the first is refused only if the schedule is gone meanwhile.
_EDITS = ("schedule_edit", "schedule_pause", "schedule_resume")
_GONE = "NotFound"


def check_refusals(evidence: Evidence) -> Iterator[Violation]:
    yield from _check_schedules(evidence)
    yield from _check_workflows(evidence)


def _check_schedules(evidence: Evidence) -> Iterator[Violation]:
    """An edit within the time of a refused call, and of no other, was made by that call."""
    requests: defaultdict[str, list[Request]] = defaultdict(list)
    for name in _EDITS:
        for request in evidence.requests[name]:
            requests[request.facts["schedule_id"]].append(request)
    made = evidence.requests["schedule_create"]
    for change in evidence.audit.schedules:
        if not change.is_edit or change.old_cursor is None or change.cursor is None:
            continue
        near = [*requests[change.schedule_id], *made]
        near = [request for request in near if _may_have_made(evidence, request, change)]
        if near and all(map(_is_certainly_refused, near)):
            what = f"It was edited, and {near[0].name} was refused: {near[0].answer.get('reason')}."
            yield Violation("I32", CHANGED_NOTHING, what, schedule_id=change.schedule_id, at=change.at)


def _may_have_made(evidence: Evidence, request: Request, change: ScheduleChange) -> bool:
    """Without an answer a call may be carried out at any time after it was sent."""
    if evidence.clock.earliest(request.sent) > change.at:
        return False
    is_over = request.how != "unknown" and request.ended is not None
    return not is_over or evidence.clock.latest(request.ended or 0) >= change.statement_at


def _is_certainly_refused(request: Request) -> bool:
    is_gone = str(request.answer.get("reason")).startswith(_GONE)
    return request.name == _EDITS[0] and request.how == "refused" and not is_gone


def _check_workflows(evidence: Evidence) -> Iterator[Violation]:
    cancels: defaultdict[str, list[WorkflowChange]] = defaultdict(list)
    for cancel in evidence.audit.cancels:
        cancels[cancel.workflow_id].append(cancel)
    topics = {request.facts["topic"] for request in evidence.requests["redrive_all"]}
    for job_id, life in evidence.lives.items():
        changes = cancels.get(evidence.audit.workflows.workflow_of(job_id) or "", ())
        if not changes or job_id in evidence.asked["redrive"]:
            continue
        for step in life:
            verb, change = step
            if verb != REDRIVE or change.topic in topics or is_of_its_workflow(evidence, step):
                continue
            before = [cancel.is_canceled for cancel in changes if cancel.seq < change.seq]
            is_together = any(not c.is_canceled for c in changes if c.txid == change.txid)
            if before and before[-1] and not is_together:
                what = "It was brought back, and its workflow stayed canceled."
                yield Violation("I32", BACK_TOGETHER, what, job_id, at=change.at, seq=change.seq)
