"""The forms of a cron expression: five fields, a name, `@every 5m`, and a zone before any of them.

The SDK, pulsed and the dashboard read expressions here. This module imports nothing of pulse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# The fields in their order, and the numbers that each takes.
FIELDS = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day-of-month": (1, 31),
    "month": (1, 12),
    "day-of-week": (0, 7),
}
# The names that stand for numbers of a field.
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_NAMES: dict[str, dict[str, int]] = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day-of-week": {name: number for number, name in enumerate(_DAYS)},
}
# The longest that each month gets.
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The last day of a month, or the last of its weekdays: no number stands for it.
_SPECIAL = 0

# Every value of every field written out is shorter.
_LONGEST_EXPRESSION = 1000

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)\s*")
_EVERY = re.compile(r"@every\b\s*(.*)", re.IGNORECASE)
# A question mark is a star, with a step or without one.
_ANY = re.compile(r"(?<![^\s,])\?(?=[\s,/]|$)")
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]{0,15})(?:\.([0-9]{0,15}))?(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression: either fields or an interval is set."""

    zone: str | None
    """The time zone that the text names; None if it names none."""
    fields: str
    """As cronsim reads them. Not checked; empty for an interval."""
    interval: timedelta | None
    """Of `@every`."""


def zone_of(text: str) -> str | None:
    """Return the time zone that an expression names, as in `TZ=Europe/Paris 0 9 * * *`."""
    prefix = _ZONE.match(text.lstrip())
    return (prefix[1] or "UTC") if prefix else None


@lru_cache(maxsize=1024)  # an installation has few, and reads them at each fire
def read_expression(text: str) -> CronExpression:
    """Read the form of the expression. The fields themselves are not checked.

    Raises ValueError. Its text is a sentence without its subject, the expression.
    """
    if not text.strip():
        raise ValueError("is empty: give five fields, such as '0 9 * * 1-5', or a name such as @daily.")
    if len(text) > _LONGEST_EXPRESSION:
        raise ValueError(f"has {len(text)} characters; {_LONGEST_EXPRESSION} are allowed at the most.")
    rest, zone = text.strip(), zone_of(text)
    if prefix := _ZONE.match(rest):
        rest = rest[prefix.end() :]
        if not rest:
            raise ValueError("names a time zone and nothing else: add five fields.")
    if every := _EVERY.fullmatch(rest):
        return CronExpression(zone, "", _interval(every[1].strip()))
    if rest.startswith("@"):
        named = NAMED.get(rest.lower())
        if named is None:
            raise ValueError(f"is not known; the names are {', '.join(NAMED)} and @every 5m.")
        return CronExpression(zone, named, None)
    if len(fields := rest.split()) != len(FIELDS):
        raise ValueError(
            f"has {len(fields)} field{'s' * (len(fields) != 1)}; it takes five: "
            "minute, hour, day of month, month, day of week."
        )
    return CronExpression(zone, _ANY.sub("*", rest), None)


def _interval(text: str) -> timedelta:
    """Read a duration as Go writes it: 1h30m, 90s, 1.5h, 500ms. It counts in whole milliseconds."""
    digits = text.removeprefix("+")
    nanoseconds, end = 0, 0
    while part := _PART.match(digits, end):
        whole, fraction, unit = part[1], part[2] or "", _UNITS[part[3]]
        if not whole and not fraction:
            break
        nanoseconds += int(whole or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        end = part.end()
    if not digits or end < len(digits):
        raise ValueError("has no duration: write for example @every 90s, @every 5m or @every 1h30m.")
    try:
        return timedelta(milliseconds=nanoseconds // _UNITS["ms"])
    except OverflowError:
        return timedelta.max  # longer than any bound


def fires_a_day(text: str) -> float:
    """Return how often an expression fires on a day on which it fires; 0 if it cannot be read."""
    try:
        read = read_expression(text)
    except ValueError:
        return 0
    if read.interval is not None:
        return timedelta(days=1) / read.interval if read.interval else 0
    minutes, hours = (
        {number for term in given.upper().split(",") for number in _numbers(term, name, least, most)}
        for given, (name, (least, most)) in zip(read.fields.split()[:2], FIELDS.items(), strict=False)
    )
    return len(minutes) * len(hours)


def check_fields(fields: str) -> None:
    """Raise ValueError for a field that cannot be read, and for a day that no month of the expression has.

    Its text is a sentence without its subject, the expression. A day that comes in no year passes.
    """
    each = fields.split()
    read: dict[str, set[int]] = {}
    for given, (name, (least, most)) in zip(each, FIELDS.items(), strict=True):
        read[name] = set()
        for term in given.upper().split(","):
            numbers = _numbers(term, name, least, most)
            if not numbers:
                raise ValueError(
                    f"has a bad {name} field, {given[:40]!r}: it takes {least} to {most}, *, ranges "
                    "such as 1-5, steps such as */15, and lists of these."
                )
            read[name] |= numbers
    # With a star for the other, a day of the month that no month has never comes.
    longest = max(_LENGTHS[month - 1] for month in read["month"])
    if each[4].startswith(("*", "?")) and min(read["day-of-month"]) > longest:
        raise ValueError("never occurs: these months have no such day of the month.")


def _numbers(term: str, name: str, least: int, most: int) -> set[int]:
    """Return the numbers that a term stands for; none if it is not one."""
    names = _NAMES.get(name, {})

    def number(text: str) -> int:
        value = names[text] if text in names else int(text) if re.fullmatch("[0-9]{1,9}", text) else -1
        return value if least <= value <= most else -1

    if name == "day-of-week" and re.fullmatch("[0-9]+L", term):
        return {_SPECIAL} if number(term[:-1]) >= 0 else set()
    if name == "day-of-week" and "#" in term:
        day, _, nth = term.partition("#")
        return {_SPECIAL} if number(day) >= 0 and re.fullmatch("0*[1-5]", nth) else set()
    term, slash, step = term.partition("/")
    if slash and not re.fullmatch("0*[1-9][0-9]*", step):
        return set()
    if name == "day-of-month" and term in ("L", "LW"):
        return {_SPECIAL}
    first, dash, last = term.partition("-")
    start, end = number(first), number(last if dash else first)
    if term in ("*", "?"):
        start, end = least, most
    elif slash and not dash:
        end = most
    if not 0 <= start <= end:
        return set()
    return set(range(start, end + 1, int(step) if slash else 1))
