"""One job: what it is, what happened to it, what happens next, and what may be done about it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from starlette.responses import Response

import pulse
from pulse_text import printable, statuses
from pulse_ui.pages.whole_numbers import required_number, whole_number
from pulse_ui.views import words
from pulse_ui.views.job_actions import ACTIONS
from pulse_ui.views.metadata import metadata_view
from pulse_ui.views.outlook import outlook
from pulse_ui.views.payloads import SHOWN_AT_MOST, payload_view
from pulse_ui.views.timeline import timeline
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    job = await visit.client.get_job(_id_of(visit))
    topic, dispatch = None, None
    if job.status in statuses.WAITING:
        topic, dispatch = await asyncio.gather(
            _topic_of(visit, job), visit.ask("GetDispatchStatus", visit.client.dispatch_status, None)
        )
    now = datetime.now(UTC)
    wants_all = visit.query.text("payload") == "all"
    return await visit.page(
        "job.html",
        title=f"{printable.one_line(job.topic)} …{job.id[-12:]}",
        # A large payload is not sent again every few seconds.
        live=None if wants_all else f"job:{job.id}",
        job=job,
        topic_name=printable.one_line(job.topic),
        outlook=outlook(job, topic, dispatch, now),
        timeline=timeline(job, now),
        payload=payload_view(job.payload, whole=wants_all),
        payload_at_most=SHOWN_AT_MOST,
        wants_all=wants_all,
        metadata=metadata_view(job.metadata),
        can_cancel=job.status in ACTIONS["cancel"].statuses and visit.may("CancelJob"),
        can_prioritize=job.status in ACTIONS["prioritize"].statuses and visit.may("PrioritizeJob"),
        can_retry=job.status in ACTIONS["retry"].statuses and visit.may("RetryJob"),
        can_delete=job.status in ACTIONS["delete"].statuses and visit.may("DeleteJob"),
    )


async def payload(visit: Visit) -> Response:
    """The payload as a file. Never shown by the browser: it may be anybody's page."""
    job = await visit.client.get_job(_id_of(visit))
    return Response(
        job.payload,
        media_type="text/plain" if payload_view(job.payload).kind != "binary" else "application/octet-stream",
        headers={"content-disposition": f'attachment; filename="job-{job.id}-payload"'},
    )


async def cancel(visit: Visit, form: Form) -> Response:
    await visit.client.cancel(_id_of(visit), form.text("reason"))
    return visit.back(form, "The job was canceled.")


async def retry(visit: Visit, form: Form) -> Response:
    job = await visit.client.retry(_id_of(visit), whole_number(form, "attempts", "Further attempts"))
    left = job.max_attempts - job.attempts
    return visit.back(form, f"The job runs again, with up to {words.plural(left, 'further attempt')}.")


async def delete(visit: Visit, form: Form) -> Response:
    job_id = _id_of(visit)
    await visit.client.delete(job_id)
    return visit.go("/jobs", f"Job {job_id} was deleted.")


async def prioritize(visit: Visit, form: Form) -> Response:
    priority = required_number(form, "priority", "Priority")
    job = await visit.client.prioritize(_id_of(visit), priority, form.text("reason"))
    return visit.back(form, f"The priority is {job.priority} now.")


def _id_of(visit: Visit) -> str:
    return str(visit.request.path_params["job_id"])


async def _topic_of(visit: Visit, job: pulse.JobInfo) -> pulse.TopicInfo | None:
    return next(iter(await visit.topics(names=[job.topic])), None)
