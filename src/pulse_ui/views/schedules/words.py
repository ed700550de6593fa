"""A schedule as a page names it, and when it fires in plain words."""

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
    """What it is called; the end of its id if it has no name."""
    has_name: bool
    when: str
    """Empty for a moment, which is shown as one."""
    moment: datetime | None
    """Of a schedule that fires once."""
    expression: str
    """Of a cron schedule, as it was given; empty when `when` is that already."""
    time_zone: str
    """Of a cron schedule."""


def called(schedule: pulse.ScheduleInfo) -> str:
    """Return what a sentence calls the schedule: its name, or its whole id."""
    return printable.one_line(schedule.name or schedule.id)


def schedule_words(schedule: pulse.ScheduleInfo) -> ScheduleWords:
    """Return how the schedule is shown."""
    name = printable.one_line(schedule.name) if schedule.name else f"…{schedule.id[-_SHORT_ID:]}"
    when, moment, expression, time_zone = spec_words(schedule.spec)
    return ScheduleWords(name, bool(schedule.name), when, moment, expression, time_zone)


def spec_words(spec: pulse.Cron | pulse.Every | pulse.At) -> tuple[str, datetime | None, str, str]:
    """Return the words, the moment, the expression and the zone of what a schedule fires by."""
    match spec:
        case pulse.Every(interval):
            return interval_words(interval), None, "", ""
        case pulse.At(moment):
            return "", moment, "", ""
        case pulse.Cron(expression=expression, tz=time_zone):
            shown = printable.one_line(expression)
            words = cron_words(expression, time_zone)
            return (words, None, shown, time_zone) if words else (shown, None, "", time_zone)
