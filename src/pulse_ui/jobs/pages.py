"""The list of jobs, finding one, the page of one with its actions; and new jobs and signals by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

import pulse
from pulse.ids import uuid7
from pulse_text import printable
from pulse_text.jobs import LIVE, TERMINAL, plain_facts
from pulse_text.times import parse_duration
from pulse_ui import tuning, words
from pulse_ui.audit import changes_of
from pulse_ui.jobs.actions import ACTIONS
from pulse_ui.jobs.filters import jobs_path, read_filter
from pulse_ui.jobs.views import (
    is_ready,
    job_rows,
    outlook,
    progress_view,
    state_mark,
    status_tabs,
    step_rows,
    timeline,
)
from pulse_ui.web.endpoints import LIVE_HEADER
from pulse_ui.web.forms import (
    Form,
    InvalidField,
    Reading,
    metadata_text,
    payload_text,
    read_metadata,
    read_number,
    read_payload,
    read_topic,
    refused,
    required_number,
    whole_number,
)
from pulse_ui.web.visits import Visit
from pulse_ui.words import SHOWN_AT_MOST, metadata_view, own_metadata, payload_view

_ID = re.compile(r"[0-9a-f]{1,32}")
_TOPICS_FOUND = 8
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
        rows=job_rows(page.jobs, now, await _reasons(visit, page.jobs, now)),
        next_path=asked.path(cursor=page.next_cursor) if page.next_cursor else None,
        looked_back_to=page.looked_back_to,
        cursor=cursor,
        refusal=refusal,
        topics=topics,
        tabs=status_tabs(counted, is_counted=asked.is_known_by_topic),
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


async def _reasons(visit: Visit, jobs: Sequence[pulse.JobInfo], now: datetime) -> dict[str, str]:
    """Return by id why the ready jobs do not run. Empty if pulsed cannot explain them."""
    ids = [job.id for job in jobs if is_ready(job, now)]
    found, _ = await visit.explain(lambda: visit.client.explain_jobs(ids), ())
    return {why.job_id: printable.one_line(why.brief) for why in found if why.job_id and why.cause}


async def find(visit: Visit) -> Response:
    """Redirect to the job with this id prefix, or show the jobs and topics that the text is a part of."""
    typed = visit.query.text("q")
    digits = re.sub(r"[\s-]", "", typed).lower()
    if _ID.fullmatch(digits) and len(found := await visit.client.find_jobs(digits)) == 1:
        return visit.go(f"/jobs/{found[0]}")
    asked = read_filter(visit.query.items(), now=datetime.now(UTC), zone=visit.zone)
    found_jobs, problem = pulse.FoundJobs((), 0, None, None), ""
    if typed and not visit.may("SearchJobs"):
        problem = f"There is no job whose id starts with “{typed[:60]}”. Type more of it."
    elif typed:
        cursor = visit.query.text("cursor") or None
        try:
            found_jobs = await visit.client.search_jobs(
                typed, limit=tuning.PAGE_SIZE, cursor=cursor, **asked.which
            )
        except pulse.InvalidArgument as error:
            problem = str(error)
        except pulse.DeadlineExceeded:
            problem = "This search takes too long. Narrow it by topic, status or time."
    topics = await visit.topics(search=typed, limit=_TOPICS_FOUND) if typed and not problem else None
    return await visit.page(
        "find.html",
        title="Search",
        status=400 if problem else 200,
        typed=typed,
        asked=asked,
        problem=problem,
        found=found_jobs,
        page_size=tuning.PAGE_SIZE,
        topics=[topic.topic for topic in topics.topics] if topics else [],
        rows=job_rows(found_jobs.jobs, datetime.now(UTC)),
        older_path="/find?"
        + urlencode([("q", typed), *asked.pairs(), ("cursor", found_jobs.next_cursor or "")]),
    )


async def show_one(visit: Visit) -> Response:
    job = await visit.client.get_job(visit.part("job_id"))
    explained, can_be_explained = await visit.explain(lambda: _unfinished(visit, job), ())
    why = next(iter(explained), None)
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
        state=state_mark(job, now),
        topic_name=printable.one_line(job.topic),
        outlook=outlook(job, now, why),
        can_be_explained=can_be_explained,
        workflow_name=printable.one_line(workflow.name) if workflow is not None else "",
        plain_facts=plain_facts(job),
        timeline=timeline(job, now),
        progress=progress_view(job, now),
        steps=step_rows(steps, now),
        payload=payload_view(job.payload, whole=wants_all),
        result=None if job.result_bytes is None else payload_view(job.result_bytes, whole=wants_all),
        payload_at_most=SHOWN_AT_MOST,
        wants_all=wants_all,
        metadata=metadata_view(job.metadata),
        signals=job.waits_for.split("\n") if job.waits_for else [],
        new_id=uuid7(),
        can_signal=job.status in LIVE and (bool(job.steps) or bool(job.waits_for)) and visit.may("SignalJob"),
        can_run_again=job.status in TERMINAL and visit.may("SubmitJob"),
        changes=await changes_of(visit, id=job.id),
        can_cancel=job.status in ACTIONS["cancel"].statuses and visit.may("CancelJob"),
        can_prioritize=job.status in ACTIONS["prioritize"].statuses and visit.may("PrioritizeJob"),
        can_retry=job.status in ACTIONS["retry"].statuses and visit.may("RetryJob"),
        can_delete=job.status in ACTIONS["delete"].statuses and visit.may("DeleteJob"),
    )


async def payload(visit: Visit) -> Response:
    """Return the payload as a download. A browser must not render it: it may be any content."""
    job = await visit.client.get_job(visit.part("job_id"))
    return _download(job.payload, f"job-{job.id}-payload")


async def result(visit: Visit) -> Response:
    """Return the result as a download."""
    job = await visit.client.get_job(visit.part("job_id"))
    return _download(job.result_bytes or b"", f"job-{job.id}-result")


def _download(data: bytes, name: str) -> Response:
    return Response(
        data,
        media_type="text/plain" if payload_view(data).kind != "binary" else "application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


async def cancel(visit: Visit, form: Form) -> Response:
    await visit.client.cancel(visit.part("job_id"), form.reason)
    return visit.back(form, "The job was canceled.")


async def retry(visit: Visit, form: Form) -> Response:
    attempts = whole_number(form, "attempts", "Further attempts")
    job = await visit.client.retry(
        visit.part("job_id"),
        attempts,
        fresh=bool(form.text("fresh")),
        now=bool(form.text("now")),
        reason=form.reason,
    )
    left = job.max_attempts - job.attempts
    return visit.back(form, f"The job was retried, with up to {words.plural(left, 'further attempt')}.")


async def delete(visit: Visit, form: Form) -> Response:
    job_id = visit.part("job_id")
    await visit.client.delete(job_id, reason=form.reason)
    return visit.go("/jobs", f"Job {job_id} was deleted.")


async def prioritize(visit: Visit, form: Form) -> Response:
    priority = required_number(form, "priority", "Priority")
    job = await visit.client.prioritize(visit.part("job_id"), priority, form.reason)
    return visit.back(form, f"The priority is now {job.priority}.")


async def _workflow_of(visit: Visit, job: pulse.JobInfo) -> pulse.WorkflowInfo | None:
    """Return the workflow of a job; None if the visitor may not see it, or it has been deleted."""
    try:
        return await visit.ask("GetWorkflow", lambda: visit.client.workflows.get(job.workflow_id or ""), None)
    except pulse.NotFound:
        return None


async def _unfinished(visit: Visit, job: pulse.JobInfo) -> Sequence[pulse.Explanation]:
    """Return why the job does not run; nothing if it has ended or was deleted."""
    if job.status.is_finished:
        return ()
    try:
        return await visit.client.explain_jobs([job.id])
    except pulse.NotFound:
        return ()


# ---------------------------------------------------------------- new jobs and signals


@dataclass(frozen=True, slots=True)
class JobForm:
    """The values of the fields, as text."""

    topic: str = ""
    payload: str = ""
    priority: str = "0"
    delay: str = ""
    lane: str = ""
    max_attempts: str = ""
    metadata: str = ""
    source: str = ""
    """The id of the job that it was filled from."""
    job_id: str = ""
    """Of the new job: a form that is sent twice stores it once."""

    def typed(self, form: Form) -> JobForm:
        """Return the form with the sent fields replaced."""
        known = {field.name for field in fields(self)}
        return replace(self, **{name: text for name, text in form.items() if name in known})

    @property
    def has_options(self) -> bool:
        """True if a field that is folded away by default has a value."""
        return bool(self.lane or self.max_attempts or self.metadata)


async def show_form(visit: Visit) -> Response:
    """Show the form: empty, for a topic, or filled from another job."""
    form = JobForm(job_id=uuid7()).typed(visit.query)
    source = await visit.client.get_job(form.source) if form.source else None
    if source is not None:
        form = replace(
            form,
            topic=source.topic,
            payload=payload_text(source.payload) or "",
            priority=str(source.priority),
            lane=source.lane or "",
            max_attempts=str(source.max_attempts),
            metadata=metadata_text(own_metadata(source.metadata)) or "",
        )
    return await _page(visit, form, source)


async def enqueue(visit: Visit, form: Form) -> Response:
    typed = JobForm().typed(form)
    source = await visit.client.get_job(typed.source) if typed.source else None
    reading = Reading()
    read = reading.read
    wanted: dict[str, Any] = {
        "topic": read(read_topic, typed.topic),
        "args": read(read_payload, typed.payload),
        "priority": read(read_number, "priority", typed.priority) or 0,
        "delay": read(_read_delay, typed.delay),
        "lane": typed.lane.strip() or None,
        "max_attempts": read(read_number, "max_attempts", typed.max_attempts),
        "metadata": read(read_metadata, typed.metadata),
    }
    if reading.problems:
        return await _page(visit, typed, source, reading.problems)
    if source is not None:
        # A value that a text field cannot hold is kept.
        if wanted["args"] is None and payload_text(source.payload) is None:
            wanted["args"] = source.payload
        if not wanted["metadata"] and metadata_text(own_metadata(source.metadata)) is None:
            wanted["metadata"] = own_metadata(source.metadata)
    try:
        handle = await visit.client.enqueue(**wanted, job_id=typed.job_id or None)
    except pulse.AlreadyExists:
        problem = "This form was sent before, with other values. Open it anew to enqueue another job."
        return await _page(visit, typed, source, {"": problem})
    except pulse.InvalidArgument as error:
        return await _page(visit, typed, source, dict([refused(error)]))
    return visit.go(f"/jobs/{handle.id}", f"Enqueued on {printable.one_line(handle.topic)}.")


async def run_again(visit: Visit, form: Form) -> Response:
    """Enqueue a job with the payload and the options of this one. Keys are not repeated."""
    job = await visit.client.get_job(visit.part("job_id"))
    handle = await visit.client.enqueue(
        job.topic,
        job.payload,
        priority=job.priority,
        max_attempts=job.max_attempts,
        lane=job.lane,
        metadata=own_metadata(job.metadata),
        job_id=form.text("job_id") or None,
    )
    notice = "Enqueued again, with the same payload and options."
    return visit.go(f"/jobs/{handle.id}", notice, link=(f"/jobs/{job.id}", "The job it was made from"))


async def signal(visit: Visit, form: Form) -> Response:
    name = form.text("name")
    if not name:
        raise pulse.InvalidArgument("Enter the name of the signal.")
    try:
        value = read_payload(form.raw("value"))
    except InvalidField as invalid:
        raise pulse.InvalidArgument(f"The value of the signal: {invalid.sentence}") from None
    await visit.client.signal(visit.part("job_id"), name, value, reason=form.reason)
    return visit.back(form, f"Sent the signal {printable.one_line(name)}.")


async def _page(
    visit: Visit, form: JobForm, source: pulse.JobInfo | None, problems: dict[str, str] | None = None
) -> Response:
    title = "Enqueue a job" if source is None else "Edit and enqueue"
    return await visit.page(
        "job_form.html",
        title=title,
        status=400 if problems else 200,
        form=form,
        source=source,
        problems=problems or {},
        topics=await visit.topic_suggestions(),
        keeps_payload=source is not None and payload_text(source.payload) is None,
        keeps_metadata=source is not None and metadata_text(own_metadata(source.metadata)) is None,
    )


def _read_delay(text: str) -> timedelta | None:
    if not text.strip():
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidField("delay", str(error)) from None
