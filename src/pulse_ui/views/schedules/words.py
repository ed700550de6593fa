"""The name of a schedule, and its timetable in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_ui.views.schedules.cron import cron_words
from pulse_ui.views.words import interval_words

_SHORT_ID = 12


@dataclass(frozen=True, slots=True)
class ScheduleWords:
    name: str
    """Its name; the end of its id if it has none."""
    has_name: bool
    when: str
    """Empty for a one-time schedule, which has `moment`."""
    moment: datetime | None
    """Of a one-time schedule."""
    expression: str
    """Of a cron schedule; empty if `when` is the expression."""
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
