"""Cron expressions and schedules in words. pulsed decides when one fires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

import pulse
from pulse.cron_expressions import read_expression
from pulse_text import printable
from pulse_ui.words import interval_words

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
