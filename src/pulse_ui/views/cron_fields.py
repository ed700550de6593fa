"""Reads cron expressions as pulsed does, for the words about them. pulsed alone decides when one fires."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LAST_DAY = -1
LAST_WEEKDAY = -2
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALL_DATES = frozenset(range(1, 32))
_NUMBER = re.compile(r"[0-9]{1,4}")
_ZONE = re.compile(r"\A\s*(?:CRON_)?TZ=(\S*)\s*")
_EVERY = re.compile(r"@every\s+\+?(\S+)\s*", re.IGNORECASE)
_ANY = re.compile(r"(?<![^\s,])\?(?=[\s,/]|$)")
_MILLISECONDS = {
    "ns": "1e-6",
    "us": "1e-3",
    "µs": "1e-3",
    "μs": "1e-3",
    "ms": "1",
    "s": "1e3",
    "m": "6e4",
    "h": "3.6e6",
}
_PART = r"([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """Such as the second Tuesday of a month. `number` None: the last one."""

    weekday: int
    number: int | None


@dataclass(frozen=True, slots=True)
class CronFields:
    """What each field stands for, written out. Weekdays count from Sunday, which is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    dates: frozenset[int]
    """Days of the month; LAST_DAY and LAST_WEEKDAY stand for what differs from month to month."""
    months: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[NthWeekday]
    needs_both: bool
    """A day has to fit the date and the weekday; else one of them is enough."""

    @property
    def is_every_date(self) -> bool:
        """True if the dates restrict nothing."""
        return self.needs_both and self.dates >= _ALL_DATES

    @property
    def is_every_weekday(self) -> bool:
        """True if the weekdays restrict nothing."""
        return self.needs_both and len(self.weekdays) == 7

    @property
    def is_every_day(self) -> bool:
        all_dates = self.dates >= _ALL_DATES
        all_weekdays = len(self.weekdays) == 7
        return all_dates and all_weekdays if self.needs_both else all_dates or all_weekdays


def own_zone(expression: str) -> str | None:
    """Return the zone that the expression names itself, as in `TZ=Europe/Paris 0 9 * * *`."""
    prefix = _ZONE.match(expression)
    return (prefix[1] or "UTC") if prefix else None


def read_interval(expression: str) -> timedelta | None:
    """Return the interval of `@every 1h30m`; None for every other expression."""
    every = _EVERY.fullmatch(_ZONE.sub("", expression, count=1))
    if every is None or not _DURATION.fullmatch(every[1]):
        return None
    parts = re.findall(_PART, every[1])
    milliseconds = sum(Decimal(number) * Decimal(_MILLISECONDS[unit]) for number, unit in parts)
    try:
        return timedelta(milliseconds=int(milliseconds)) or None
    except OverflowError:
        return None


def read_cron(expression: str) -> CronFields | None:
    """Return what the expression stands for, or None if that cannot be read here."""
    expression = _ZONE.sub("", expression, count=1)
    parts = _ANY.sub("*", NAMED.get(expression.strip().lower(), expression)).upper().split()
    if len(parts) != 5:
        return None
    minute, hour, date, month, weekday = parts
    minutes = _values(minute, 0, 59)
    hours = _values(hour, 0, 23)
    dates = _dates(date)
    months = _values(month, 1, 12, _MONTHS)
    weekdays = _weekdays(weekday)
    if minutes is None or hours is None or dates is None or months is None or weekdays is None:
        return None
    # As in Debian: with a star at the beginning of either, a day has to fit both.
    needs_both = date.startswith("*") or weekday.startswith("*")
    if needs_both and min(dates) > max(_LONGEST_MONTH[number - 1] for number in months):
        return None
    return CronFields(minutes, hours, dates, months, *weekdays, needs_both)


def _values(
    text: str, first: int, last: int, names: tuple[str, ...] = (), names_from: int = 1
) -> frozenset[int] | None:
    found: set[int] = set()
    for term in text.split(","):
        values = _term(term, first, last, names, names_from)
        if not values:
            return None
        found |= values
    return frozenset(found)


def _term(text: str, first: int, last: int, names: tuple[str, ...], names_from: int) -> set[int] | None:
    """Return the values of `*`, `5`, `1-5`, and each of them with a step."""
    span, slash, step_text = text.partition("/")

    def number(word: str) -> int | None:
        if word in names:
            return names.index(word) + names_from
        value = int(word) if _NUMBER.fullmatch(word) else -1
        return value if first <= value <= last else None

    beginning, dash, end = span.partition("-")
    low, high = (first, last) if span == "*" else (number(beginning), number(end if dash else beginning))
    if low is None or high is None or high < low:
        return None
    if not slash:
        return set(range(low, high + 1))
    if not _NUMBER.fullmatch(step_text) or int(step_text) == 0:
        return None
    # A step after a single value goes on to the end.
    return set(range(low, (last if low == high else high) + 1, int(step_text)))


def _dates(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for term in text.split(","):
        special = {"L": LAST_DAY, "LW": LAST_WEEKDAY}.get(term)
        values = _term(term, 1, 31, (), 0) if special is None else {special}
        if not values:
            return None
        found |= values
    return frozenset(found)


def _weekdays(text: str) -> tuple[frozenset[int], frozenset[NthWeekday]] | None:
    plain: set[int] = set()
    nth: set[NthWeekday] = set()
    for term in text.split(","):
        weekday, mark, number = term.partition("#")
        is_last = re.fullmatch(r"[0-7]L", term)
        if not mark and not is_last:
            values = _term(term, 0, 7, _WEEKDAYS, 0)
            if not values:
                return None
            plain |= {value % 7 for value in values}
            continue
        values = _term(weekday[:1] if is_last else weekday, 0, 7, _WEEKDAYS, 0)
        if values is None or len(values) != 1 or (mark and number not in "12345") or (mark and not number):
            return None
        nth.add(NthWeekday(values.pop() % 7, int(number) if mark else None))
    return frozenset(plain), frozenset(nth)
