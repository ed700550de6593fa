"""The list of jobs, finding one by its id, and the page of one job with its actions."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode

from starlette.responses import Response

import pulse
from pulse_text import printable, statuses
from pulse_ui import tuning
from pulse_ui.views import words
from pulse_ui.views.jobs.actions import ACTIONS
from pulse_ui.views.jobs.filters import jobs_path, read_filter
from pulse_ui.views.jobs.outlook import outlook
from pulse_ui.views.jobs.rows import job_rows, progress_view, status_tabs
from pulse_ui.views.jobs.timeline import step_rows, timeline
from pulse_ui.views.payloads import SHOWN_AT_MOST, metadata_view, payload_view
from pulse_ui.views.workflows.waits import Waits
from pulse_ui.web.endpoints import LIVE_HEADER
from pulse_ui.web.forms import Form, required_number, whole_number
from pulse_ui.web.visits import Visit

_ID = re.compile(r"[0-9a-f]{1,32}")
_SINCE_CHOICES = ("15m", "1h", "24h", "7d")


async def show_list(visit: Visit) -> Response:
    """Show the jobs that match, newest first, one page at a time."""
    query = visit.query
    if LIVE_HEADER not in visit.request.headers and any(not value.strip() for _, value in query.items()):
        # A form sends its empty fields too. Drop them for a readable URL.
        return visit.go(jobs_path([(name, value) for name, value in query.items() if value.strip()]))
    now = datetime.now(UTC)
    cursor = query.text("cursor") or None
    asked = read_filter(query.items(), now=now, zone=visit.zone)
    (page, refusal), topics = await asyncio.gather(_list(visit, cursor, asked.which), visit.topics())
    topic = asked.which.get("topic")
    counted = (topics.sum,) if topic is None else (await visit.topics(names=[topic])).topics
    actions = [action for action in ACTIONS.values() if visit.may(action.needs)]
    is_certain = not asked.problems and not refusal
    return await visit.page(
        "jobs.html",
        title="Jobs",
        # Later pages do not refresh, so that rows do not move while they are read.
        live="jobs" if cursor is None and not refusal else None,
        asked=asked,
        chips=asked.chips(visit.zone),
        rows=job_rows(page.jobs, now),
        next_path=asked.path(cursor=page.next_cursor) if page.next_cursor else None,
        cursor=cursor,
        refusal=refusal,
        topics=topics,
        tabs=status_tabs(counted, topic=topic, is_counted=asked.is_known_by_topic),
        since_choices=_SINCE_CHOICES,
        actions=[one for one in actions if asked.status is None or asked.status in one.statuses],
        # Not with an invalid field: it would match more than the user expects.
        actions_on_all=[one for one in actions if one.takes(asked.status)]
        if is_certain and not asked.is_any
        else [],
        confirm_all=lambda verb: (
            f"/jobs/confirm?{urlencode([('action', verb), ('all', '1'), *asked.pairs()])}"
        ),
    )


async def _list(visit: Visit, cursor: str | None, which: pulse.JobFilter) -> tuple[pulse.Page, str]:
    """Return the page, or an empty one and the reason if pulsed refuses the filter."""
    nothing = pulse.Page((), None)
    try:
        return await visit.client.list_jobs(limit=tuning.PAGE_SIZE, cursor=cursor, **which), ""
    except pulse.InvalidArgument as error:
        if cursor is not None and "page_token" in str(error):
            return nothing, "There is no such page of the list. Start with the newest."
        return nothing, str(error)
    except pulse.DeadlineExceeded:
        if not which:
            raise
        # Errors and metadata are searched job by job. The other call shows whether pulsed is available.
        return nothing, "This search takes too long: narrow it by topic, status or time."


async def find(visit: Visit) -> Response:
    """Redirect to the job with this id prefix, or list the candidates."""
    typed = visit.query.text("id")
    digits = re.sub(r"[\s-]", "", typed).lower()
    if not _ID.fullmatch(digits):
        problem = "" if not typed else f"“{typed[:60]}” is not a prefix of a job id."
        return await _found(visit, typed, problem, [], status=400 if typed else 200)
    match await visit.client.find_jobs(digits):
        case []:
            problem = f"There is no job whose id starts with “{typed[:60]}”."
            return await _found(visit, typed, problem, [], status=404)
        case [job_id]:
            return visit.go(f"/jobs/{job_id}")
        case several:
            jobs = await asyncio.gather(*map(visit.client.get_job, several), return_exceptions=True)
            # One may have been deleted since.
            found = [job for job in jobs if isinstance(job, pulse.JobInfo)]
            return await _found(visit, typed, "", found)


async def _found(
    visit: Visit, typed: str, problem: str, jobs: list[pulse.JobInfo], *, status: int = 200
) -> Response:
    return await visit.page(
        "find.html",
        title="Find a job",
        status=status,
        typed=typed,
        problem=problem,
        rows=job_rows(jobs, datetime.now(UTC)),
    )


async def show_one(visit: Visit) -> Response:
    job = await visit.client.get_job(_id_of(visit))
    topic, dispatch, waits = None, None, None
    limits: dict[str, pulse.TopicLimits] = {}
    if job.status is pulse.JobStatus.PENDING and job.waits_for_jobs:
        waits = await visit.ask("ListWorkflowJobs", lambda: _waits_of(visit, job), None)
    elif job.status in statuses.WAITING:
        topic, dispatch, limits = await asyncio.gather(
            _topic_of(visit, job),
            visit.ask("GetDispatchStatus", visit.client.dispatch_status, None),
            visit.limits_of([job.topic]),
        )
    steps = await visit.ask("ListSteps", lambda: visit.client.steps(job.id), []) if job.steps else []
    workflow = await _workflow_of(visit, job) if job.workflow_id else None
    now = datetime.now(UTC)
    wants_all = visit.query.text("payload") == "all"
    return await visit.page(
        "job.html",
        title=f"{printable.one_line(job.topic)} …{job.id[-12:]}",
        # A large payload is not sent again at every refresh.
        live=None if wants_all else f"job:{job.id}",
        job=job,
        topic_name=printable.one_line(job.topic),
        outlook=outlook(job, topic, dispatch, now, limits.get(job.topic), waits),
        workflow_name=printable.one_line(workflow.name) if workflow is not None else "",
        timeline=timeline(job, now),
        progress=progress_view(job, now),
        steps=step_rows(steps, now),
        payload=payload_view(job.payload, whole=wants_all),
        result=None if job.result_bytes is None else payload_view(job.result_bytes, whole=wants_all),
        payload_at_most=SHOWN_AT_MOST,
        wants_all=wants_all,
        metadata=metadata_view(job.metadata),
        can_cancel=job.status in ACTIONS["cancel"].statuses and visit.may("CancelJob"),
        can_prioritize=job.status in ACTIONS["prioritize"].statuses and visit.may("PrioritizeJob"),
        can_retry=job.status in ACTIONS["retry"].statuses and visit.may("RetryJob"),
        can_delete=job.status in ACTIONS["delete"].statuses and visit.may("DeleteJob"),
    )


async def payload(visit: Visit) -> Response:
    """Return the payload as a download. A browser must not render it: it may be any content."""
    job = await visit.client.get_job(_id_of(visit))
    return _download(job.payload, f"job-{job.id}-payload")


async def result(visit: Visit) -> Response:
    """Return the result as a download."""
    job = await visit.client.get_job(_id_of(visit))
    return _download(job.result_bytes or b"", f"job-{job.id}-result")


def _download(data: bytes, name: str) -> Response:
    return Response(
        data,
        media_type="text/plain" if payload_view(data).kind != "binary" else "application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


async def cancel(visit: Visit, form: Form) -> Response:
    await visit.client.cancel(_id_of(visit), form.text("reason"))
    return visit.back(form, "The job was canceled.")


async def retry(visit: Visit, form: Form) -> Response:
    attempts = whole_number(form, "attempts", "Further attempts")
    job = await visit.client.retry(_id_of(visit), attempts, fresh=bool(form.text("fresh")))
    left = job.max_attempts - job.attempts
    return visit.back(form, f"The job was retried, with up to {words.plural(left, 'further attempt')}.")


async def delete(visit: Visit, form: Form) -> Response:
    job_id = _id_of(visit)
    await visit.client.delete(job_id)
    return visit.go("/jobs", f"Job {job_id} was deleted.")


async def prioritize(visit: Visit, form: Form) -> Response:
    priority = required_number(form, "priority", "Priority")
    job = await visit.client.prioritize(_id_of(visit), priority, form.text("reason"))
    return visit.back(form, f"The priority is now {job.priority}.")


def _id_of(visit: Visit) -> str:
    return str(visit.request.path_params["job_id"])


async def _topic_of(visit: Visit, job: pulse.JobInfo) -> pulse.TopicInfo | None:
    return next(iter(await visit.topics(names=[job.topic])), None)


async def _workflow_of(visit: Visit, job: pulse.JobInfo) -> pulse.WorkflowInfo | None:
    """Return the workflow of a job; None if the visitor may not see it, or it has been deleted."""
    try:
        return await visit.ask("GetWorkflow", lambda: visit.client.workflows.get(job.workflow_id or ""), None)
    except pulse.NotFound:
        return None


async def _waits_of(visit: Visit, job: pulse.JobInfo) -> Waits:
    read = partial(visit.client.workflows.jobs, parents_of=job.id, limit=tuning.PARENTS_READ)
    return Waits(*await asyncio.gather(read(unended=True), read()))
