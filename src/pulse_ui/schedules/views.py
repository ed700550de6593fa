"""Schedules in words, and the form of one as the schedule that it describes. Typed values are kept unchanged.

pulsed decides when a schedule fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

import pulse
from pulse.cron_expressions import read_expression, zone_of
from pulse_text import printable
from pulse_text.times import format_exact, parse_duration
from pulse_ui.web.forms import (
    InvalidField,
    Reading,
    metadata_text,
    payload_text,
    read_metadata,
    read_number,
    read_payload,
    read_topic,
)
from pulse_ui.words import interval_words, zone_named

_ALL_DATES = frozenset(range(1, 32))
_ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def read_interval(expression: str) -> timedelta | None:
    """Return the interval of `@every 1h30m`; None for every other expression."""
    try:
        return read_expression(expression).interval or None
    except ValueError:
        return None


def cron_words(expression: str, zone: str = "UTC") -> str | None:
    """Return when the expression fires, such as "at 09:00 on Monday, in UTC"; None if it cannot be read."""
    try:
        read = read_expression(expression)
        if read.interval is not None:
            return interval_words(read.interval) if read.interval else None
        fields = read.fields.split()
        cron = CronSim(" ".join(fields), _ANY_MOMENT)
        if not cron.day_and and cron.days >= _ALL_DATES:
            # Every date fires, whatever the weekday. CronSim would name the weekday alone.
            cron = CronSim(" ".join([*fields[:2], "*", fields[3], "*"]), _ANY_MOMENT)
    except (ValueError, CronSimError, AssertionError):
        return None
    words = cron.explain()
    # "Every 15th minute of every hour" is the same in every zone.
    is_anywhere = fields[0].startswith("*") and fields[1:] == ["*"] * 4
    return f"{words[0].lower()}{words[1:]}" + ("" if is_anywhere else f", in {read.zone or zone}")


_SHORT_ID = 12


@dataclass(frozen=True, slots=True)
class ScheduleWords:
    name: str
    """Its name; the end of its id if it has none."""
    has_name: bool
    when: str
    """Empty for a one-time schedule, which has `moment`."""
    moment: datetime | None
    """The time of a one-time schedule."""
    expression: str
    """The expression of a cron schedule; empty if `when` is the expression."""
    time_zone: str
    """Of a cron schedule."""


def called(schedule: pulse.ScheduleInfo) -> str:
    """Return the name of a schedule in sentences: its name, or its id."""
    return printable.one_line(schedule.name or schedule.id)


def schedule_words(schedule: pulse.ScheduleInfo) -> ScheduleWords:
    """Return how the schedule is shown."""
    name = printable.one_line(schedule.name) if schedule.name else f"…{schedule.id[-_SHORT_ID:]}"
    when, moment, expression, time_zone = spec_words(schedule.spec)
    return ScheduleWords(name, bool(schedule.name), when, moment, expression, time_zone)


def spec_words(spec: pulse.Cron | pulse.Every | pulse.At) -> tuple[str, datetime | None, str, str]:
    """Return the words, the moment, the expression and the zone of a timetable."""
    match spec:
        case pulse.Every(interval):
            return interval_words(interval), None, "", ""
        case pulse.At(moment):
            return "", moment, "", ""
        case pulse.Cron(expression=expression, tz=time_zone):
            shown = printable.one_line(expression)
            words = cron_words(expression, time_zone)
            return (words, None, shown, time_zone) if words else (shown, None, "", time_zone)


# ---------------------------------------------------------------- the form

KINDS = ("cron", "interval", "once")
_TIMETABLE_FIELDS = {"interval": ("every",), "once": ("at", "time_zone")}


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """The values of the fields, as text."""

    name: str = ""
    topic: str = ""
    kind: str = "cron"
    cron: str = ""
    every: str = ""
    at: str = ""
    time_zone: str = "UTC"
    payload: str = ""
    priority: str = "0"
    max_attempts: str = ""
    catch_up: str = "one"
    overlap: str = "allow"
    metadata: str = ""

    def typed(self, given: Mapping[str, str]) -> ScheduleForm:
        """Return the form with the sent fields replaced."""
        names = {field.name for field in fields(self)}
        form = replace(self, **{name: text for name, text in given.items() if name in names})
        return form if form.kind in KINDS else replace(form, kind="cron")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The schedule described by a form."""

    name: str | None
    topic: str
    spec: pulse.Cron | pulse.Every | pulse.At
    args: bytes | None
    """The JSON as typed; None: no arguments."""
    priority: int
    max_attempts: int | None
    """None: the default of pulsed."""
    catch_up: pulse.CatchUp
    overlap: pulse.Overlap
    metadata: dict[str, str]


def form_of_schedule(schedule: pulse.ScheduleInfo, zone: ZoneInfo) -> ScheduleForm:
    """Return the form of this schedule; a moment is in the visitor's zone."""
    form = ScheduleForm(
        name=schedule.name or "",
        topic=schedule.topic,
        kind=schedule.kind,
        time_zone=zone.key,
        payload=payload_text(schedule.payload) or "",
        priority=str(schedule.priority),
        max_attempts=str(schedule.max_attempts),
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        metadata=metadata_text(schedule.metadata) or "",
    )
    match schedule.spec:
        case pulse.Cron(expression=expression, tz=time_zone):
            return replace(form, cron=expression, time_zone=time_zone)
        case pulse.Every(interval):
            return replace(form, every=format_exact(interval))
        case pulse.At(moment):
            there = moment.astimezone(zone).replace(tzinfo=None)
            return replace(form, at=there.isoformat(timespec="seconds" if there.second else "minutes"))


def read_form(form: ScheduleForm, now: datetime) -> tuple[Wanted | None, dict[str, str]]:
    """Return the schedule, or a sentence for each invalid field."""
    reading = Reading()
    read = reading.read
    wanted = Wanted(
        name=form.name.strip() or None,
        topic=read(read_topic, form.topic),
        spec=read(read_spec, form, now),
        args=read(read_payload, form.payload),
        priority=read(read_number, "priority", form.priority) or 0,
        max_attempts=read(read_number, "max_attempts", form.max_attempts),
        catch_up=read(read_catch_up, form.catch_up),
        overlap="allow" if form.kind == "once" else read(read_overlap, form.overlap),
        metadata=read(read_metadata, form.metadata),
    )
    return (None if reading.problems else wanted), reading.problems


def read_changes(
    form: ScheduleForm, before: ScheduleForm, now: datetime
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments for `schedules.update`, and a sentence for each invalid field.

    Only changed fields are included: a new timetable starts now, so an unchanged one must not be sent.
    """
    reading = Reading()
    changes: dict[str, Any] = {}

    def change(
        name: str, fields_read: tuple[str, ...], reader: Callable[..., Any], *arguments: object
    ) -> None:
        if any(getattr(form, field).strip() != getattr(before, field).strip() for field in fields_read):
            changes[name] = reading.read(reader, *arguments)

    # Of a cron schedule the expression and the zone may have different owners.
    if before.kind == "cron":
        change("spec", ("cron",), _read_cron, form)
        if "spec" not in changes or not zone_of(form.cron):
            change("tz", ("time_zone",), _read_zone, form)
    else:
        change("spec", _TIMETABLE_FIELDS[before.kind], read_spec, form, now)
    change("topic", ("topic",), read_topic, form.topic)
    change("args", ("payload",), read_payload, form.payload)
    change("priority", ("priority",), lambda: read_number("priority", form.priority) or 0)
    change("max_attempts", ("max_attempts",), read_number, "max_attempts", form.max_attempts)
    change("catch_up", ("catch_up",), read_catch_up, form.catch_up)
    change("overlap", ("overlap",), read_overlap, form.overlap)
    change("metadata", ("metadata",), read_metadata, form.metadata)
    return changes, reading.problems


# ---------------------------------------------------------------- timetables


def read_spec(form: ScheduleForm, now: datetime) -> pulse.Cron | pulse.Every | pulse.At:
    """Return the timetable of the form. Raises InvalidField."""
    if form.kind == "interval":
        return pulse.Every(read_span(form.every))
    time_zone = _read_zone(form)
    if form.kind == "once":
        return pulse.At(read_moment(form.at.strip(), time_zone, now))
    cron = _read_cron(form)
    # A zone inside the expression takes precedence over the field.
    return cron if cron.names_zone else pulse.Cron(cron.expression, time_zone)


def _read_zone(form: ScheduleForm) -> str:
    if time_zone := form.time_zone.strip():
        return time_zone
    raise InvalidField("time_zone", "Enter a time zone, such as Europe/Paris or UTC.")


def _read_cron(form: ScheduleForm) -> pulse.Cron:
    if expression := form.cron.strip():
        return pulse.Cron(expression)
    raise InvalidField("cron", "Enter an expression, such as 0 9 * * 1-5 or @daily.")


def has_timetable(form: ScheduleForm) -> bool:
    """True if the field of the form's kind is not empty."""
    return bool({"cron": form.cron, "interval": form.every, "once": form.at}[form.kind].strip())


CATCH_UPS: tuple[pulse.CatchUp, ...] = ("one", "skip", "all")
OVERLAPS: tuple[pulse.Overlap, ...] = ("allow", "skip", "queue")


def read_span(text: str) -> timedelta:
    if not text.strip():
        raise InvalidField("every", "Enter an interval, such as 90s, 5m, 2h or 1d.")
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidField("every", str(error)) from None


def read_moment(text: str, time_zone: str, now: datetime) -> datetime:
    zone = zone_named(time_zone)
    if zone.key != time_zone:
        raise InvalidField(
            "time_zone",
            f"“{time_zone[:40]}” is not a time zone: use an IANA name such as Europe/Paris, or UTC.",
        )
    if not text:
        raise InvalidField("at", "Choose a date and a time.")
    try:
        written = datetime.fromisoformat(text)
        moment = written if written.tzinfo is not None else written.replace(tzinfo=zone)
        universal = moment.astimezone(UTC)
        is_real = universal.astimezone(moment.tzinfo).replace(tzinfo=None) == moment.replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise InvalidField("at", f"“{text[:40]}” is not a time: write it as 2030-01-31T09:00.") from None
    if not is_real:
        raise InvalidField("at", f"This time does not exist in {time_zone}: the clocks skip it.")
    if universal <= now:
        raise InvalidField("at", "This time has passed. Choose a later one.")
    return universal


def read_catch_up(text: str) -> pulse.CatchUp:
    for known in CATCH_UPS:
        if text == known:
            return known
    raise InvalidField("catch_up", "Choose one of the options.")


def read_overlap(text: str) -> pulse.Overlap:
    for known in OVERLAPS:
        if text == known:
            return known
    raise InvalidField("overlap", "Choose one of the options.")
