"""The form that creates and edits schedules. An invalid form is shown again with its values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from starlette.responses import Response

import pulse
from pulse_text.consequences import more_fires
from pulse_ui import tuning
from pulse_ui.views.schedules.cron import called, spec_words
from pulse_ui.views.schedules.forms import (
    ScheduleForm,
    form_of_schedule,
    has_timetable,
    read_changes,
    read_form,
    read_spec,
)
from pulse_ui.web.forms import Form, InvalidField, metadata_text, payload_text, refused
from pulse_ui.web.visits import Visit, asks
from pulse_ui.words import brief, zone_named, zone_names

# Errors of the form, as opposed to errors of the server.
_ABOUT_THE_FORM = (pulse.InvalidArgument, pulse.AlreadyExists)


@dataclass(frozen=True, slots=True)
class Preview:
    """The next fires of a form, or why there are none."""

    words: str = ""
    problem: str = ""
    field: str = ""
    """The field with the problem."""
    fires: tuple[tuple[datetime, str], ...] = ()
    """Each with its time in the schedule's own zone; empty if that is the visitor's zone."""
    time_zone: str = ""


async def show_new(visit: Visit) -> Response:
    # A link may prefill the form: /schedules/new?topic=send-email
    form = ScheduleForm(time_zone=visit.zone.key).typed(dict(visit.query.items()))
    return await _page(visit, form)


async def show_edit(visit: Visit) -> Response:
    schedule = await _schedule(visit)
    return await _page(visit, form_of_schedule(schedule, visit.zone), schedule)


async def preview(visit: Visit) -> Response:
    form = ScheduleForm(time_zone=visit.zone.key).typed(dict(visit.query.items()))
    return visit.fragment("schedule_preview.html", preview=await _preview(visit, form))


async def create(visit: Visit, form: Form) -> Response:
    typed = ScheduleForm().typed(dict(form.items()))
    show_again = partial(_page, visit, typed, reason=form.reason)
    if "preview" in form:
        return await show_again()
    wanted, problems = read_form(typed, datetime.now(UTC))
    if wanted is None:
        return await show_again(problems=problems)
    try:
        made = await visit.client.schedule(
            wanted.topic,
            wanted.args,
            wanted.spec,
            name=wanted.name,
            priority=wanted.priority,
            max_attempts=wanted.max_attempts,
            metadata=wanted.metadata,
            catch_up=wanted.catch_up,
            overlap=wanted.overlap,
            reason=form.reason,
        )
    except _ABOUT_THE_FORM as error:
        return await show_again(problems=dict([refused(error)]))
    return visit.go(f"/schedules/{made.id}", f"Created the schedule {called(made)}.")


async def update(visit: Visit, form: Form) -> Response:
    schedule = await _schedule(visit)
    before = form_of_schedule(schedule, visit.zone)
    # Neither can change: ignore the values that a browser sends.
    fixed = {"name": before.name, "kind": before.kind}
    typed = before.typed(dict(form.items()) | fixed)
    show_again = partial(_page, visit, typed, schedule, reason=form.reason)
    if "preview" in form:
        return await show_again()
    changes, problems = read_changes(typed, before, datetime.now(UTC))
    if problems:
        return await show_again(problems=problems)
    if not changes:
        sentence = "Nothing was changed: the form had the same values."
        return visit.go(f"/schedules/{schedule.id}", sentence)
    more = more_fires(schedule, changes.get("spec"))
    if question := await asks(visit, form, more, verb="Save the schedule"):
        return question
    try:
        changed = await visit.client.schedules.update(schedule, reason=form.reason, **changes)
    except _ABOUT_THE_FORM as error:
        return await show_again(problems=dict([refused(error)]))
    return visit.go(f"/schedules/{changed.id}", f"Changed the schedule {called(changed)}.")


async def _page(
    visit: Visit,
    form: ScheduleForm,
    schedule: pulse.ScheduleInfo | None = None,
    *,
    problems: dict[str, str] | None = None,
    reason: str = "",
) -> Response:
    title = "New schedule" if schedule is None else f"Edit {called(schedule)}"
    preview = await _preview(visit, form)
    if problems and preview.problem and preview.field:
        # pulsed checks the timetable: show its problem with those of the other fields.
        problems.setdefault(preview.field, preview.problem)
    return await visit.page(
        "schedule_form.html",
        title=title,
        status=400 if problems else 200,
        heading=title,
        form=form,
        schedule=schedule,
        problems=problems or {},
        reason=reason,
        preview=preview,
        zone_names=zone_names(),
        topics=await visit.topic_suggestions(),
        # A value that a text field cannot hold is kept.
        keeps_payload=schedule is not None and payload_text(schedule.payload) is None,
        keeps_metadata=schedule is not None and metadata_text(schedule.metadata) is None,
    )


async def _preview(visit: Visit, form: ScheduleForm) -> Preview:
    if not visit.may("PreviewSchedule") or not has_timetable(form):
        return Preview()
    try:
        spec = read_spec(form, datetime.now(UTC))
        fires = await visit.client.schedules.preview(spec, tuning.NEXT_FIRES_LISTED)
    except InvalidField as invalid:
        return Preview(problem=invalid.sentence, field=invalid.field)
    except _ABOUT_THE_FORM as error:
        field, sentence = refused(error)
        return Preview(problem=sentence, field=field)
    except pulse.PulseError as error:
        # A failed preview must not lose the typed values.
        return Preview(problem=str(error))
    words, _, _, _ = spec_words(spec)
    time_zone = "" if form.kind == "interval" else form.time_zone.strip()
    zone = zone_named(time_zone)
    # A zone that only the server knows is not shown.
    is_apart = time_zone == zone.key != visit.zone.key
    return Preview(
        words=words or "once",
        fires=tuple(
            (fire, f"{brief(fire, zone)} {fire.astimezone(zone):%Z}" if is_apart else "") for fire in fires
        ),
        time_zone=time_zone if is_apart else "",
    )


async def _schedule(visit: Visit) -> pulse.ScheduleInfo:
    return await visit.client.schedules.get(visit.part("schedule_id"))
