"""The list of schedules; one schedule, its next fires and actions; and the form that creates and edits it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from starlette.responses import Response

import pulse
from pulse_text.consequences import more_fires
from pulse_text.schedules import is_in_code, names_of, owned_entries
from pulse_ui import tuning
from pulse_ui.audit import changes_of
from pulse_ui.schedules.views import (
    ScheduleForm,
    ScheduleWords,
    called,
    form_of_schedule,
    has_timetable,
    read_changes,
    read_form,
    read_interval,
    read_spec,
    schedule_words,
    spec_words,
)
from pulse_ui.web.forms import Form, InvalidField, metadata_text, payload_text, refused
from pulse_ui.web.visits import Visit, asks
from pulse_ui.words import brief, metadata_view, payload_view, zone_named, zone_names

_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule of the list."""

    schedule: pulse.ScheduleInfo
    words: ScheduleWords
    next_fires: list[datetime]
    last_fire: pulse.ScheduleFire | None


async def show_all(visit: Visit) -> Response:
    cursor = visit.query.text("cursor") or None
    page, scheduler = await asyncio.gather(
        visit.client.schedules.list(limit=tuning.SCHEDULES_SHOWN, cursor=cursor),
        visit.ask("GetSchedulerStatus", visit.client.schedules.status, None),
    )
    return await visit.page(
        "schedules.html",
        title="Schedules",
        live="jobs",
        rows=await asyncio.gather(*(_row(visit, schedule) for schedule in page)),
        scheduler=scheduler,
        is_late=scheduler is not None
        and scheduler.late_seconds >= tuning.SCHEDULER_VERY_LATE.total_seconds(),
        cursor=cursor,
        next_cursor=page.next_cursor,
    )


async def show(visit: Visit) -> Response:
    try:
        schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    except pulse.NotFound as error:
        return await _show_gone(visit, str(error))
    next_fires, fires, changes = await asyncio.gather(
        upcoming(visit, schedule, tuning.NEXT_FIRES),
        _fires(visit, schedule.id, tuning.FIRES_SHOWN),
        changes_of(visit, id=schedule.id),
    )
    words = schedule_words(schedule)
    return await visit.page(
        "schedule.html",
        title=words.name,
        live="jobs",
        schedule=schedule,
        words=words,
        next_fires=next_fires,
        fires=fires,
        changes=changes,
        payload=payload_view(schedule.payload, whole="whole" in visit.query),
        metadata=metadata_view(schedule.metadata),
        owned=list(owned_entries(schedule)),
    )


async def pause(visit: Visit, form: Form) -> Response:
    schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    await visit.client.schedules.pause(schedule, reason=form.reason)
    sentence = f"Paused {called(schedule)}. It does not fire until it is resumed."
    return visit.back(form, sentence, otherwise=f"/schedules/{schedule.id}")


async def resume(visit: Visit, form: Form) -> Response:
    schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    await visit.client.schedules.resume(schedule, reason=form.reason)
    missed = "" if schedule.kind == "once" else " Fires missed during the pause are not made up."
    sentence = f"Resumed {called(schedule)}.{missed}"
    return visit.back(form, sentence, otherwise=f"/schedules/{schedule.id}")


async def reset(visit: Visit, form: Form) -> Response:
    schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    entries = form.texts("entry")
    if schedule.declares is not None and {"cron", "every"}.intersection(entries):
        more = more_fires(schedule, schedule.declares.spec)
        if question := await asks(visit, form, more, verb="Hand back"):
            return question
    if entries:
        await visit.client.schedules.reset(schedule, *entries, reason=form.reason)
        names = ", ".join(names_of(entries))
        sentence = f"Handed back: what the code declares for {names} of {called(schedule)} applies again."
    else:
        sentence = "Nothing was changed: no entry was chosen."
    return visit.go(f"/schedules/{schedule.id}", sentence)


async def fire(visit: Visit, form: Form) -> Response:
    schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    handle = await visit.client.schedules.fire(schedule, reason=form.reason)
    return visit.go(
        form.raw("back") or f"/schedules/{schedule.id}",
        f"Fired {called(schedule)}: a job was submitted on {handle.topic}. Its timetable does not change.",
        link=(f"/jobs/{handle.id}", "Show the job"),
    )


async def delete(visit: Visit, form: Form) -> Response:
    schedule = await visit.client.schedules.get(visit.part("schedule_id"))
    await visit.client.schedules.delete(schedule, reason=form.reason)
    sentence = f"Deleted the schedule {called(schedule)}. Its jobs are kept."
    if is_in_code(schedule):
        sentence += " The next worker of the code that declares it makes it again."
    return visit.back(form, sentence, otherwise="/schedules")


async def _show_gone(visit: Visit, sentence: str) -> Response:
    """Show that the schedule does not exist, with the jobs that it left."""
    named = visit.part("schedule_id")
    fires = await _fires(visit, named, tuning.FIRES_SHOWN) if _ID.fullmatch(named) else ()
    return await visit.page(
        "schedule_gone.html", title="No such schedule", status=404, sentence=sentence, fires=fires
    )


async def _row(visit: Visit, schedule: pulse.ScheduleInfo) -> ScheduleRow:
    next_fires, fires = await asyncio.gather(
        upcoming(visit, schedule, tuning.NEXT_FIRES_LISTED), _fires(visit, schedule.id, 1)
    )
    return ScheduleRow(schedule, schedule_words(schedule), next_fires, fires[0] if fires else None)


async def _fires(visit: Visit, schedule_id: str, limit: int) -> tuple[pulse.ScheduleFire, ...]:
    if not visit.may("ListScheduleFires"):
        return ()
    return (await visit.client.schedules.fires(schedule_id, limit=limit)).fires


# The fires of an expression are the same for all users until its next fire.
_previews: dict[tuple[str, str, int], list[datetime]] = {}


async def upcoming(visit: Visit, schedule: pulse.ScheduleInfo, count: int) -> list[datetime]:
    """Return the next fires of a schedule in order; none while it is paused."""
    first = schedule.next_run_at
    if schedule.paused or first is None:
        return []
    match schedule.spec:
        case pulse.Every(interval):
            # From its own next fire: a preview would start now.
            return [first + number * interval for number in range(count)]
        case pulse.Cron(expression=expression) if every := read_interval(expression):
            return [first + number * every for number in range(count)]
        case pulse.Cron() as cron if visit.may("PreviewSchedule"):
            later = [fire for fire in await _fires_of(visit.client, cron, count) if fire > first]
            return [first, *later][:count]
    return [first]


async def _fires_of(client: pulse.Pulse, cron: pulse.Cron, count: int) -> list[datetime]:
    key = (cron.expression, cron.tz, count)
    known = _previews.get(key)
    if known and known[0] > datetime.now(UTC):
        return known
    try:
        fires = await client.schedules.preview(cron, count)
    except pulse.InvalidArgument:
        return []  # the server no longer knows its zone; show the rest of the page
    while len(_previews) >= tuning.PREVIEWS:
        del _previews[next(iter(_previews))]
    _previews[key] = fires
    return fires


# Errors of the form, as opposed to errors of the server.
# ---------------------------------------------------------------- the form

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
