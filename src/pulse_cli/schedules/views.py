"""Schedules and their fires as tables and descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse_cli.jobs.views import status_cell
from pulse_cli.output import (
    Shape,
    View,
    blank,
    facts,
    fields_shape,
    heading,
    indented,
    payload_shape,
    payload_text,
    value_shape,
)
from pulse_cli.terminal import QUIET, WARNING, Cell, Column, Line, Row, ago, full, local, now
from pulse_text import printable
from pulse_text.schedules import changed_entries, owned_entries
from pulse_text.times import format_exact, iso

if TYPE_CHECKING:
    import pulse


def schedule_view() -> View[pulse.ScheduleInfo]:
    """Return the view of a list of schedules."""
    present = now()

    def row(schedule: pulse.ScheduleInfo) -> Row:
        return [
            Cell(printable.one_line(schedule.name or schedule.id)),
            Cell(printable.one_line(schedule.topic)),
            Cell("once" if schedule.kind == "once" else printable.one_line(spec_text(schedule.spec))),
            Cell("paused", WARNING) if schedule.paused else Cell(_moment(schedule.next_run_at, present)),
            Cell(_moment(schedule.last_run_at, present), QUIET),
            Cell(_declared_by(schedule), WARNING if schedule.vanished_at or schedule.overrides else QUIET),
            Cell(schedule.id, QUIET),
        ]

    columns = (
        Column("SCHEDULE", shortest=36),  # the length of an id, for a schedule without a name
        Column("TOPIC", shortest=8, drop=1),
        Column("WHEN", shortest=11, drop=2),
        Column("NEXT"),
        Column("LAST", drop=3),
        Column("DECLARED BY", shortest=8, drop=4),
        Column("ID", drop=5),
    )
    fields = (
        "id",
        "name",
        "topic",
        "kind",
        "at",
        "every",
        "cron",
        "tz",
        "paused",
        "next_run_at",
        "last_run_at",
        "declared_by",
        "vanished_at",
    )
    return View(columns, row, schedule_shape, fields)


def fire_view() -> View[pulse.ScheduleFire]:
    """Return the view of the fires of a schedule."""
    present = now()

    def row(fire: pulse.ScheduleFire) -> Row:
        return [Cell(_moment(fire.fired_at, present)), Cell(fire.job_id), status_cell(fire.status)]

    columns = (Column("FIRED"), Column("JOB"), Column("STATUS"))
    return View(columns, row, fire_shape, ("job_id", "fired_at", "status"))


def preview_view() -> View[datetime]:
    """Return the view of upcoming fires."""
    present = now()

    def row(moment: datetime) -> Row:
        when, _, relative = full(moment, present).partition(" (")
        return [Cell(when), Cell(relative.removesuffix(")"), QUIET)]

    return View(
        (Column("FIRES"), Column("THAT IS", drop=1)),
        row,
        lambda moment: {"fires_at": iso(moment)},
        ("fires_at",),
    )


def describe_schedule(schedule: pulse.ScheduleInfo, fires: Sequence[datetime] = ()) -> Iterator[Line]:
    """Yield the description of a schedule, line by line; `fires` are the upcoming ones."""
    present = now()
    title = [Cell(printable.one_line(schedule.name or schedule.id), "bold")]
    yield [*title, Cell("  "), Cell("paused", WARNING)] if schedule.paused else title
    yield from facts(
        ("Id", schedule.id),
        ("Topic", schedule.topic),
        ("When", spec_text(schedule.spec)),
        ("Next fire", None if schedule.paused else schedule.next_run_at),
        ("Last fire", schedule.last_run_at),
        ("Priority", str(schedule.priority)),
        ("Max attempts", str(schedule.max_attempts)),
        ("Start within", format_exact(schedule.start_within) if schedule.start_within else None),
        ("Catch-up", schedule.catch_up),
        ("Overlap", schedule.overlap),
        ("Queued fire", schedule.queued_for),
        ("Created", schedule.created_at),
        ("Declared by", _declared_by(schedule)),
        ("Vanished", schedule.vanished_at),
        *((f"@{name}", value) for name, value in sorted(schedule.metadata.items())),
        present=present,
    )
    if schedule.overrides:
        yield blank()
        yield heading("Set by operators")
        for owned in owned_entries(schedule):
            when = "" if owned.set_at is None else f" {ago(owned.set_at, present)}"
            remark = f"set by {owned.set_by}{when}; the code declares {owned.declared}"
            yield [Cell(f"  {owned.name:<13} {owned.value}", WARNING), Cell(f"  {remark}", QUIET)]
    if fires and not schedule.paused:
        yield blank()
        yield heading("Next fires")
        for moment in fires:
            yield [Cell(f"  {full(moment, present)}")]
    if schedule.payload:
        yield blank()
        yield heading("Payload of its jobs")
        yield from indented(payload_text(schedule.payload))


def spec_text(spec: pulse.At | pulse.Every | pulse.Cron) -> str:
    """Return a timetable in words."""
    import pulse

    match spec:
        case pulse.Every(interval):
            return f"every {format_exact(interval)}"
        case pulse.Cron(expression=expression, tz=tz):
            return expression if tz == "UTC" else f"{expression} {tz}"
        case pulse.At(when):
            return f"once, {local(when)}"


def describe_changes(before: pulse.ScheduleInfo, after: pulse.ScheduleInfo) -> Iterator[Line]:
    """Yield the entries that were changed, each with its old and its new value."""
    changes = list(changed_entries(before, after))
    yield heading("Changed" if changes else "Nothing was changed: it had these values.")
    for name, old, new in changes:
        yield [Cell(f"  {name:<13} {old} → {new}")]
    yield blank()


def _declared_by(schedule: pulse.ScheduleInfo) -> str:
    application = printable.one_line(schedule.declared_by or ("code" if schedule.declared else ""))
    gone = " (not any more)" if application and schedule.vanished_at else ""
    names = ", ".join(owned.name for owned in owned_entries(schedule))
    return f"{application}{gone}{f'; operators: {names}' if names else ''}"


def _moment(moment: datetime | None, present: datetime) -> str:
    return "–" if moment is None else ago(moment, present)


# ---------------------------------------------------------------- JSON


def schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule in a list."""
    return (
        fields_shape(schedule, "id name topic kind")
        | spec_shape(schedule.spec)
        | fields_shape(
            schedule,
            "paused next_run_at last_run_at priority max_attempts catch_up created_at metadata declared_by "
            "vanished_at start_within overlap queued_for declared",
        )
        | {
            "overrides": [fields_shape(each, "entry set_by set_at") for each in schedule.overrides],
            "declares": None if schedule.declares is None else _declared_shape(schedule.declares),
        }
    )


def _declared_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """What code declares in place of an operator's entries."""
    return (
        fields_shape(schedule, "topic")
        | spec_shape(schedule.spec)
        | fields_shape(schedule, "priority max_attempts catch_up metadata start_within overlap")
    )


def whole_schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule on its own: with the payload of its jobs."""
    shape = schedule_shape(schedule) | payload_shape(schedule.payload)
    if schedule.declares is not None:
        shape["declares"] |= payload_shape(schedule.declares.payload)
    return shape


def fire_shape(fire: pulse.ScheduleFire) -> Shape:
    """One fire of a schedule."""
    return fields_shape(fire, "job_id fired_at status")


def spec_shape(spec: pulse.At | pulse.Every | pulse.Cron) -> Shape:
    """The timetable of a schedule: one of at, every and cron is set."""
    moment: datetime | None = getattr(spec, "moment", None)
    interval: timedelta | None = getattr(spec, "interval", None)
    return {
        "at": value_shape(moment),
        "every": value_shape(interval),
        "cron": getattr(spec, "expression", None),
        "tz": getattr(spec, "tz", None),
    }
