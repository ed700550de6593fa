"""The form of a schedule, and the schedule that it stands for. What was typed is kept as it was typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pulse
from pulse_text.durations import format_exact
from pulse_ui.views.schedules.cron import own_zone
from pulse_ui.views.schedules.fields import (
    InvalidField,
    metadata_text,
    payload_text,
    read_catch_up,
    read_metadata,
    read_moment,
    read_number,
    read_payload,
    read_span,
    read_topic,
)

KINDS = ("cron", "interval", "once")
_SAYS_WHEN = {"cron": ("cron", "time_zone"), "interval": ("every",), "once": ("at", "time_zone")}
# How the server names what is wrong, the field of the form, and how the form calls it.
_FIELD_OF = {
    "name": ("name", "The name"),
    "topic": ("topic", "The topic"),
    "cron": ("cron", "The expression"),
    "every": ("every", "The interval"),
    "at": ("at", "The moment"),
    "time_zone": ("time_zone", "The time zone"),
    "payload": ("payload", "The payload"),
    "priority": ("priority", "The priority"),
    "max_attempts": ("max_attempts", "The number of attempts"),
    "metadata": ("metadata", "The metadata"),
    "catch_up": ("catch_up", "The catch-up"),
}


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """What the fields hold, as text."""

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
    metadata: str = ""

    def typed(self, given: Mapping[str, str]) -> ScheduleForm:
        """Return the form with the fields that were sent; the others stay."""
        names = {field.name for field in fields(self)}
        form = replace(self, **{name: text for name, text in given.items() if name in names})
        return form if form.kind in KINDS else replace(form, kind="cron")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The schedule that a form asks for."""

    name: str | None
    topic: str
    spec: pulse.Cron | pulse.Every | pulse.At
    args: bytes | None
    """The JSON as it was typed; None: no arguments."""
    priority: int
    max_attempts: int | None
    """None: what pulsed takes if nobody says."""
    catch_up: pulse.CatchUp
    metadata: dict[str, str]


def form_of_schedule(schedule: pulse.ScheduleInfo, zone: ZoneInfo) -> ScheduleForm:
    """Return the form that shows this schedule; a moment is written in the visitor's zone."""
    form = ScheduleForm(
        name=schedule.name or "",
        topic=schedule.topic,
        kind=schedule.kind,
        time_zone=zone.key,
        payload=payload_text(schedule.payload) or "",
        priority=str(schedule.priority),
        max_attempts=str(schedule.max_attempts),
        catch_up=schedule.catch_up,
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


class _Reading:
    """Reads field after field, and remembers what was wrong with each."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def read(self, reader: Callable[..., Any], *arguments: object) -> Any:
        try:
            return reader(*arguments)
        except InvalidField as invalid:
            self.problems[invalid.field] = invalid.sentence
            return None


def read_form(form: ScheduleForm, now: datetime) -> tuple[Wanted | None, dict[str, str]]:
    """Return the schedule, or else a sentence for each field that is wrong."""
    reading = _Reading()
    read = reading.read
    wanted = Wanted(
        name=form.name.strip() or None,
        topic=read(read_topic, form.topic),
        spec=read(read_spec, form, now),
        args=read(read_payload, form.payload),
        priority=read(read_number, "priority", form.priority) or 0,
        max_attempts=read(read_number, "max_attempts", form.max_attempts),
        catch_up=read(read_catch_up, form.catch_up),
        metadata=read(read_metadata, form.metadata),
    )
    return (None if reading.problems else wanted), reading.problems


def read_changes(
    form: ScheduleForm, before: ScheduleForm, now: datetime
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what `schedules.update` has to be told, and a sentence for each field that is wrong.

    Only what was typed anew is read and said: a new spec counts from now, so one that nobody touched stays.
    """
    reading = _Reading()
    said: dict[str, Any] = {}

    def say(name: str, fields_read: tuple[str, ...], reader: Callable[..., Any], *arguments: object) -> None:
        if any(getattr(form, field).strip() != getattr(before, field).strip() for field in fields_read):
            said[name] = reading.read(reader, *arguments)

    say("spec", _SAYS_WHEN[before.kind], read_spec, form, now)
    say("topic", ("topic",), read_topic, form.topic)
    say("args", ("payload",), read_payload, form.payload)
    say("priority", ("priority",), lambda: read_number("priority", form.priority) or 0)
    say("max_attempts", ("max_attempts",), read_number, "max_attempts", form.max_attempts)
    say("catch_up", ("catch_up",), read_catch_up, form.catch_up)
    say("metadata", ("metadata",), read_metadata, form.metadata)
    return said, reading.problems


def refused(error: pulse.PulseError) -> tuple[str, str]:
    """Return the field that the server refused, and its sentence in the words of the form.

    The field is empty when the sentence is about none of them.
    """
    if isinstance(error, pulse.AlreadyExists):
        return "name", "Another schedule has this name already. Choose another one, or edit that schedule."
    named, _, rest = str(error).partition(" ")
    if named not in _FIELD_OF:
        return "", str(error)
    field, spoken = _FIELD_OF[named]
    return field, f"{spoken} {rest}"


# ------------------------------------------------------------ when


def read_spec(form: ScheduleForm, now: datetime) -> pulse.Cron | pulse.Every | pulse.At:
    """Return when the form says that it fires. Raises InvalidField."""
    if form.kind == "interval":
        return pulse.Every(read_span(form.every))
    time_zone = form.time_zone.strip()
    if not time_zone:
        raise InvalidField("time_zone", "Name a time zone, such as Europe/Paris or UTC.")
    if form.kind == "once":
        return pulse.At(read_moment(form.at.strip(), time_zone, now))
    expression = form.cron.strip()
    if not expression:
        raise InvalidField("cron", "Write an expression, such as 0 9 * * 1-5 or @daily.")
    # One that names its own zone means that one, whatever the field beside it holds.
    return pulse.Cron(expression, own_zone(expression) or time_zone)


def says_when(form: ScheduleForm) -> bool:
    """True once something stands in the field of the form's kind."""
    return bool({"cron": form.cron, "interval": form.every, "once": form.at}[form.kind].strip())
