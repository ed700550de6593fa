"""Checks the timetable of a declared schedule in the program that declares it, before any server sees it.

It refuses nothing that pulsed accepts. A day that comes in no year is left for the server to find.
"""

from __future__ import annotations

import re
from datetime import timedelta

from pulse.cron_expressions import FIELDS, read_expression
from pulse.errors import InvalidArgument
from pulse.models.specs import Cron, Every, Spec

# The limits of the server.
_SHORTEST = timedelta(milliseconds=100)
_LONGEST = timedelta(days=3650)

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
# The names that stand for numbers of a field.
_NAMES: dict[str, dict[str, int]] = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day-of-week": {name: number for number, name in enumerate(_DAYS)},
}
# The longest that each month gets.
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The last day of a month, or the last of its weekdays: no number stands for it.
_SPECIAL = 0


def check_timetable(spec: Spec) -> None:
    """Raise InvalidArgument if the interval, the cron expression or its time zone is invalid."""
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
    shown = f"The cron expression {' '.join(expression[:200].split())[:80]!r}"
    try:
        read = read_expression(expression)
    except ValueError as error:
        raise InvalidArgument(f"{shown} {error}") from None
    if read.zone is not None and tz not in ("UTC", read.zone):
        raise InvalidArgument(f"{shown} names the zone {read.zone!r}, and tz is {tz!r}: name the zone once.")
    _check_zone(tz)
    if read.interval is not None:
        _check_interval(shown, read.interval)
    else:
        _check_fields(shown, read.fields.upper().split())


def _check_fields(shown: str, fields: list[str]) -> None:
    read: dict[str, set[int]] = {}
    for given, (name, (least, most)) in zip(fields, FIELDS.items(), strict=True):
        read[name] = set()
        for term in given.split(","):
            numbers = _numbers(term, name, least, most)
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
