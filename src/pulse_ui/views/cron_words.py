"""When a cron expression fires, in plain words: "at 09:00 on weekdays, in Europe/Paris".

Words are only said where they hold to the minute. What they would bend is shown as the expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pulse_ui.views.cron_fields import (
    LAST_DAY,
    LAST_WEEKDAY,
    CronFields,
    NthWeekday,
    own_zone,
    read_cron,
    read_interval,
)
from pulse_ui.views.words import interval_words

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_MOST_LISTED = 6
"""Nobody reads a longer list; the expression is shorter."""


def cron_words(expression: str, zone: str = "UTC") -> str | None:
    """Return when the expression fires, or None where only the expression itself says it."""
    interval = read_interval(expression)
    if interval is not None:
        return interval_words(interval)
    fields = read_cron(expression)
    if fields is None:
        return None
    zone = own_zone(expression) or zone
    times, days = _times(fields), _days(fields)
    if times is None or days is None:
        return None
    if not days and times.startswith("at ") and ":" in times:
        days = " every day"
    # "Every 15 minutes" is the same wherever one lives.
    is_anywhere = not days and times.startswith("every ") and ":" not in times
    where = "" if is_anywhere else f", in {zone}"
    return f"{times}{days}{where}"


# ------------------------------------------------------------ the time of day


def _times(fields: CronFields) -> str | None:
    minutes, hours = sorted(fields.minutes), sorted(fields.hours)
    step = _step(minutes, 60)
    if len(hours) == 24:
        return _in_every_hour(minutes, step)
    if step is not None and len(minutes) > 1:
        if not _is_run(hours):
            return None
        return f"{_every(step, 'minute')} from {_clock(hours[0], 0)} to {_clock(hours[-1], minutes[-1])}"
    if len(minutes) == 1:
        dial_step, step = _step(hours, 24), _distance(hours)
        if dial_step is not None and len(hours) > 2 and minutes == [0]:
            return _every(dial_step, "hour")
        if len(hours) > 3 and step is not None:
            first, last = _clock(hours[0], minutes[0]), _clock(hours[-1], minutes[0])
            return f"{_every(step, 'hour')} from {first} to {last}"
    if len(hours) * len(minutes) > _MOST_LISTED:
        return None
    return f"at {_listed(_clock(hour, minute) for hour in hours for minute in minutes)}"


def _in_every_hour(minutes: Sequence[int], step: int | None) -> str | None:
    if minutes == [0]:
        return "every hour"
    if step is not None:
        return _every(step, "minute")
    if len(minutes) > _MOST_LISTED:
        return None
    noun = "minute" if list(minutes) == [1] else "minutes"
    return f"at {_listed(map(str, minutes))} {noun} past every hour"


def _step(values: Sequence[int], size: int) -> int | None:
    """Return the step that makes these values of the whole dial, if one goes round without a break."""
    step = size // len(values)
    return step if size % step == 0 and list(values) == list(range(0, size, step)) else None


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


# ------------------------------------------------------------ the day


def _days(fields: CronFields) -> str | None:
    """Return the days with a space before them; empty: every day."""
    months = _months(fields.months)
    if months is None:
        return None
    if fields.is_every_day:
        return f" every day{months}" if months else ""
    if fields.is_every_weekday:
        return _on_dates(fields, months)
    if fields.is_every_date:
        return _on_weekdays(fields, months)
    if fields.needs_both:
        return None
    dates, weekdays = _dates(fields), _weekdays(fields)
    if dates is None or weekdays is None:
        return None
    return f" on {dates} of the month and {weekdays}" + (f", only{months}" if months else "")


def _on_dates(fields: CronFields, months: str) -> str | None:
    dates = _dates(fields)
    if dates is None:
        return None
    if not months:
        return f" on {dates} of the month"
    if len(fields.months) == 1 and len(fields.dates) == 1 and dates.startswith("day "):
        return f" on {dates.removeprefix('day ')}{months.replace(' in ', ' ')}"
    return f" on {dates}{months.replace(' in ', ' of ')}"


def _on_weekdays(fields: CronFields, months: str) -> str | None:
    weekdays = _weekdays(fields)
    if weekdays is None:
        return None
    if months and weekdays.endswith(" of the month"):
        return f" {weekdays.removesuffix(' of the month')}{months.replace(' in ', ' of ')}"
    return f" {weekdays}{months}"


def _dates(fields: CronFields) -> str | None:
    special = fields.dates & {LAST_DAY, LAST_WEEKDAY}
    if special:
        if len(fields.dates) > 1:
            return None
        return "the last day" if LAST_DAY in special else "the last weekday"
    dates = sorted(fields.dates)
    if len(dates) == 1:
        return f"day {dates[0]}"
    if len(dates) > 2 and _is_run(dates):
        return f"days {dates[0]} to {dates[-1]}"
    return f"days {_listed(map(str, dates))}" if len(dates) <= _MOST_LISTED else None


def _weekdays(fields: CronFields) -> str | None:
    if fields.nth_weekdays:
        if fields.weekdays or len(fields.nth_weekdays) > 1:
            return None
        (nth,) = fields.nth_weekdays
        return f"on the {_ordinal(nth)} {_WEEKDAYS[nth.weekday]} of the month"
    if fields.weekdays == {1, 2, 3, 4, 5}:
        return "on weekdays"
    if fields.weekdays == {0, 6}:
        return "on weekends"
    if len(fields.weekdays) == 6:
        (missing,) = set(range(7)) - fields.weekdays
        return f"every day except {_WEEKDAYS[missing]}s"
    # The week begins on Monday to most who read this.
    ordered = sorted(fields.weekdays, key=lambda weekday: (weekday - 1) % 7)
    return f"on {_listed(f'{_WEEKDAYS[weekday]}s' for weekday in ordered)}"


def _ordinal(nth: NthWeekday) -> str:
    return "last" if nth.number is None else _ORDINALS[nth.number]


def _months(months: frozenset[int]) -> str | None:
    """Return " in …", or empty for all of them; None: too many to list."""
    ordered = sorted(months)
    if len(ordered) == 12:
        return ""
    if len(ordered) > 3 and _is_run(ordered):
        return f" in {_MONTHS[ordered[0] - 1]} to {_MONTHS[ordered[-1] - 1]}"
    if len(ordered) > _MOST_LISTED:
        return None
    return f" in {_listed(_MONTHS[month - 1] for month in ordered)}"


# ------------------------------------------------------------ pieces


def _is_run(values: Sequence[int]) -> bool:
    return len(values) == 1 or _distance(values) == 1


def _distance(values: Sequence[int]) -> int | None:
    """Return how far apart they are, if they are all equally far apart."""
    distances = {later - earlier for earlier, later in pairwise(values)}
    return distances.pop() if len(distances) == 1 else None


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
