"""New jobs and signals by hand: the form that enqueues a job, running a job again, and sending a signal."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from starlette.responses import Response

import pulse
from pulse.ids import uuid7
from pulse_text import printable
from pulse_text.times import parse_duration
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
)
from pulse_ui.web.visits import Visit
from pulse_ui.words import own_metadata


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


async def show(visit: Visit) -> Response:
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
