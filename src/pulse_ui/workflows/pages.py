"""The list of workflows, and one workflow as a drawing and a table, with its actions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.responses import Response

import pulse
from pulse_text import printable
from pulse_ui import tuning
from pulse_ui.web.endpoints import LIVE_HEADER
from pulse_ui.web.forms import Form, further_attempts
from pulse_ui.web.visits import Visit
from pulse_ui.workflows.layout import Folded, fold, unfolded
from pulse_ui.workflows.views import STATUSES, Drawing, draw, job_table, jobs_path, workflow_row


async def show_all(visit: Visit) -> Response:
    """Show the workflows with this name and status, newest first, one page at a time."""
    query = visit.query
    if LIVE_HEADER not in visit.request.headers and any(not value.strip() for _, value in query.items()):
        # A form sends its empty fields too. Drop them for a readable URL.
        kept = {name: value for name, value in query.items() if value.strip()}
        return visit.go(_path(**kept))
    name, cursor = query.text("name"), query.text("cursor") or None
    status = query.text("status") if query.text("status") in STATUSES else ""
    page, refusal = await _list(visit, name, status, cursor)
    now = datetime.now(UTC)

    def path(**changes: str) -> str:
        return _path(**{"name": name, "status": status, **changes})

    return await visit.page(
        "workflows.html",
        title="Workflows",
        # Later pages do not refresh, so that rows do not move while they are read.
        live="jobs" if cursor is None and not refusal else None,
        rows=[workflow_row(workflow, now) for workflow in page],
        name=name,
        chosen=status,
        statuses=STATUSES,
        path=path,
        cursor=cursor,
        next_cursor=page.next_cursor,
        refusal=refusal,
    )


async def _list(visit: Visit, name: str, status: str, cursor: str | None) -> tuple[pulse.WorkflowPage, str]:
    """Return the page, or an empty one and the reason if pulsed refuses the filter."""
    try:
        return await visit.client.workflows.list(
            limit=tuning.PAGE_SIZE, cursor=cursor, name=name or None, status=status or None
        ), ""
    except pulse.InvalidArgument as error:
        if cursor is not None and "page_token" in str(error):
            return pulse.WorkflowPage((), None), "There is no such page of the list. Start with the newest."
        return pulse.WorkflowPage((), None), str(error)


async def show_one(visit: Visit) -> Response:
    workflow = await visit.client.workflows.get(visit.part("workflow_id"))
    read = await visit.ask("ListWorkflowJobs", lambda: _jobs(visit, workflow), _NOTHING)
    now = datetime.now(UTC)
    return await visit.page(
        "workflow.html",
        title=f"Workflow {printable.one_line(workflow.name)}",
        live="jobs",
        row=workflow_row(workflow, now),
        workflow=workflow,
        drawings=_drawings(workflow.id, read, now),
        jobs_read=len(read.jobs),
        is_whole=read.is_whole,
        table=job_table(workflow.id, read.jobs, read.folded, dict(visit.query.items()), now),
        can_cancel=workflow.status == "running" and visit.may("CancelWorkflow"),
        can_retry=bool(workflow.failed or workflow.canceled) and visit.may("RetryWorkflow"),
    )


def _drawings(workflow_id: str, read: _Read, now: datetime) -> list[Drawing]:
    """Return the drawing for wide screens, and one for narrow screens: folded, from top to bottom."""
    by_number = {job.number: job for job in read.jobs}

    def link(numbers: Sequence[int]) -> str:
        if len(numbers) > 1:
            return jobs_path(workflow_id, like=str(numbers[0]))
        job = by_number[numbers[0]]
        return f"/jobs/{job.id}" if job.status else jobs_path(workflow_id)

    if read.folded is None:
        return []
    return [
        draw(by_number, read.boxes or read.folded, now, link),
        draw(by_number, read.folded, now, link, is_down=True),
    ]


async def cancel(visit: Visit, form: Form) -> Response:
    workflow = await visit.client.workflows.cancel(visit.part("workflow_id"), form.reason)
    _read.pop(workflow.id, None)
    return visit.back(form, "The workflow was canceled. None of its jobs starts any more.")


async def retry(visit: Visit, form: Form) -> Response:
    workflow = await visit.client.workflows.retry(
        visit.part("workflow_id"), further_attempts(form), now=bool(form.text("now")), reason=form.reason
    )
    _read.pop(workflow.id, None)
    return visit.back(form, "The workflow was retried. Completed jobs do not run again.")


# ------------------------------------------------------------ the jobs of a workflow


@dataclass(frozen=True, slots=True)
class _Read:
    jobs: tuple[pulse.WorkflowJob, ...]
    is_whole: bool
    boxes: Folded | None
    """One for each job; None if they are too many."""
    folded: Folded | None
    """Boxes of equal jobs; None if the workflow is too large to draw."""
    workflow: pulse.WorkflowInfo | None = None
    kept_until: float = 0.0
    """Or until the workflow differs, once it has ended."""


_NOTHING = _Read((), True, None, None)
_read: dict[str, _Read] = {}
"""Large workflows that were read lately: an open page refreshes every second."""


async def _jobs(visit: Visit, workflow: pulse.WorkflowInfo) -> _Read:
    """Return the jobs of a workflow, in the order of their numbers, and their boxes."""
    began = time.monotonic()
    known = _read.pop(workflow.id, None)
    has_ended = workflow.finished_at is not None
    if known is None or not (began < known.kept_until or (has_ended and known.workflow == workflow)):
        known = _boxed(*await _read_jobs(visit, workflow.id))
        if len(known.jobs) <= tuning.WORKFLOW_PAGE:
            return known
        ended = time.monotonic()
        age = max(tuning.WORKFLOW_READ_AGE.total_seconds(), tuning.WORKFLOW_READ_SHARE * (ended - began))
        known = replace(known, workflow=workflow, kept_until=ended + age)
    while len(_read) >= tuning.WORKFLOWS_READ:
        del _read[next(iter(_read))]
    _read[workflow.id] = known
    return known


async def _read_jobs(visit: Visit, workflow_id: str) -> tuple[list[pulse.WorkflowJob], bool]:
    """Return at most WORKFLOW_JOBS_READ jobs, and whether they are all."""
    jobs: list[pulse.WorkflowJob] = []
    cursor: str | None = None
    while len(jobs) < tuning.WORKFLOW_JOBS_READ:
        page = await visit.client.workflows.jobs(workflow_id, limit=tuning.WORKFLOW_PAGE, cursor=cursor)
        jobs += page
        cursor = page.next_cursor
        if cursor is None:
            return jobs, True
    return jobs, False


def _boxed(jobs: Sequence[pulse.WorkflowJob], is_whole: bool) -> _Read:
    numbers = {job.number for job in jobs}
    # A parent that was added after its page was read is not among them.
    found = tuple(
        job
        if numbers.issuperset(job.parents)
        else replace(job, parents=tuple(sorted(numbers & {*job.parents})))
        for job in jobs
    )
    if not found or not is_whole:
        return _Read(found, is_whole, None, None)
    return _Read(found, True, unfolded(found), fold(found))


def _path(**fields: str) -> str:
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"/workflows?{query}" if query else "/workflows"
