"""Cron expressions in words, and the interval or zone that one may name. pulsed decides when it fires."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from cronsim import CronSim, CronSimError

from pulse_ui.views.words import interval_words

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ALL_DATES = frozenset(range(1, 32))
_ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
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


def cron_words(expression: str, zone: str = "UTC") -> str | None:
    """Return when the expression fires, such as "at 09:00 on Monday, in UTC"; None if it cannot be read."""
    interval = read_interval(expression)
    if interval is not None:
        return interval_words(interval)
    text = _ZONE.sub("", expression, count=1)
    fields = _ANY.sub("*", _NAMED.get(text.strip().lower(), text)).split()
    # CronSim also reads six fields, the first of them seconds. pulsed does not.
    if len(fields) != 5:
        return None
    try:
        cron = CronSim(" ".join(fields), _ANY_MOMENT)
        if not cron.day_and and cron.days >= _ALL_DATES:
            # Every date fires, whatever the weekday. CronSim would name the weekday alone.
            cron = CronSim(" ".join([*fields[:2], "*", fields[3], "*"]), _ANY_MOMENT)
    except (CronSimError, AssertionError):
        return None
    words = cron.explain()
    # "Every 15th minute of every hour" is the same in every zone.
    is_anywhere = fields[0].startswith("*") and fields[1:] == ["*"] * 4
    return f"{words[0].lower()}{words[1:]}" + ("" if is_anywhere else f", in {own_zone(expression) or zone}")
