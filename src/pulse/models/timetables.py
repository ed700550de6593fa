"""Checks the timetable of a declared schedule in the program that declares it, before any server sees it.

It refuses nothing that pulsed accepts. A day that comes in no year is left for the server to find.
"""

from __future__ import annotations

import re
from datetime import timedelta

from pulse.errors import InvalidArgument
from pulse.models.specs import Cron, Every, Spec

# The limits of the server.
_LONGEST_EXPRESSION = 1000
_SHORTEST = timedelta(milliseconds=100)
_LONGEST = timedelta(days=3650)

_NAMES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)\s*")
_EVERY = re.compile(r"@every\b\s*(.*)", re.IGNORECASE)
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# Of each field: its name, its range, and the names that stand for its numbers.
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day-of-month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day-of-week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
# The longest that each month gets.
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The last day of a month, or the last of its weekdays: no number stands for it.
_SPECIAL = 0


def check_timetable(spec: Spec) -> None:
    """Raise InvalidArgument if the interval, the cron expression or its time zone cannot be meant."""
    match spec:
        case Every(interval):
            _check_interval(repr(spec), interval)
        case Cron(expression, tz):
            _check_cron(expression, tz)


def _check_interval(what: str, interval: timedelta) -> None:
    if interval < _SHORTEST:
        raise InvalidArgument(
            f"{what} is shorter than 100 milliseconds: each occurrence is a job of its own. "
            "Give a longer one."
        )
    if interval > _LONGEST:
        raise InvalidArgument(f"{what} is longer than {_LONGEST.days} days. Give a shorter one.")


def _check_cron(expression: str, tz: str) -> None:
    text = " ".join(expression.split())
    shown = f"The cron expression {text[:80]!r}"
    if len(text) > _LONGEST_EXPRESSION:
        raise InvalidArgument(
            f"{shown} has {len(text)} characters; {_LONGEST_EXPRESSION} are allowed at the most."
        )
    if zone := _ZONE.match(text):
        text = text[zone.end() :]
        if tz not in ("UTC", own := zone[1] or "UTC"):
            raise InvalidArgument(f"{shown} names the zone {own!r}, and tz is {tz!r}: name the zone once.")
    _check_zone(tz)
    if not text:
        raise InvalidArgument(
            f"{shown} is empty: give five fields, such as '0 9 * * 1-5', or a name such as @daily."
        )
    if every := _EVERY.fullmatch(text):
        _check_interval(shown, _interval(shown, every[1].removeprefix("+")))
    elif text.startswith("@"):
        if text.lower() not in _NAMES:
            names = ", ".join(_NAMES)
            raise InvalidArgument(f"{shown} is not known; the names are {names} and @every 5m.")
    else:
        _check_fields(shown, text.upper().split())


def _interval(shown: str, text: str) -> timedelta:
    parts = list(_PART.finditer(text))
    if not text or "".join(part[0] for part in parts) != text:
        raise InvalidArgument(f"{shown} has no duration: write for example @every 90s or @every 1h30m.")
    seconds = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    # Rounded up a little: what a float loses must not refuse the shortest interval.
    return timedelta(seconds=min(seconds + 1e-6, 1e10))


def _check_fields(shown: str, fields: list[str]) -> None:
    if len(fields) != len(_FIELDS):
        raise InvalidArgument(
            f"{shown} has {len(fields)} field{'s' * (len(fields) != 1)}; it takes five: "
            "minute, hour, day of month, month, day of week."
        )
    read: dict[str, set[int]] = {}
    for given, (name, least, most, names) in zip(fields, _FIELDS, strict=True):
        read[name] = set()
        for term in given.split(","):
            numbers = _numbers(term, name, least, most, names)
            if not numbers:
                raise InvalidArgument(
                    f"{shown} has a bad {name} field, {given[:40]!r}: it takes {least} to {most}, *, ranges "
                    "such as 1-5, steps such as */15, and lists of these."
                )
            read[name] |= numbers
    # With a star for the other, a day of the month that no month has never comes.
    longest = max(_LENGTHS[month - 1] for month in read["month"])
    if fields[4].startswith(("*", "?")) and min(read["day-of-month"]) > longest:
        raise InvalidArgument(f"{shown} has a bad day-of-month field: these months have no such day.")


def _numbers(term: str, name: str, least: int, most: int, names: dict[str, int]) -> set[int]:
    """Return the numbers that a term stands for; none if it is not one."""

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


def _check_zone(name: str) -> None:
    if name == "UTC":
        return
    import zoneinfo  # imported here: most schedules are in UTC, and the module is slow to load

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # A machine without time zones knows none. The server has them.
        if zoneinfo.available_timezones():
            raise InvalidArgument(
                f"The time zone {name!r} is not known; use an IANA name such as Europe/Paris, or UTC."
            ) from None
