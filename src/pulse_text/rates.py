"""Rates as they are typed and written: 100/min, 5/s, 1000/1h30m."""

from __future__ import annotations

from datetime import timedelta

from pulse_text.times import format_exact, parse_duration

_UNITS = {
    "s": timedelta(seconds=1),
    "sec": timedelta(seconds=1),
    "second": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "minute": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "hour": timedelta(hours=1),
    "d": timedelta(days=1),
    "day": timedelta(days=1),
}
_SHORT = {"1s": "s", "1m": "min", "1h": "h", "1d": "d"}
_SHOWN = 40  # characters of a wrong value


def parse_rate(text: str) -> tuple[int, timedelta]:
    """Read a rate: the starts, and the period. Raises ValueError with a sentence."""
    starts, slash, period = (part.strip() for part in text.partition("/"))
    if slash and starts.isdecimal() and period:
        if period.lower() in _UNITS:
            return int(starts), _UNITS[period.lower()]
        try:
            return int(starts), parse_duration(period)
        except ValueError:
            pass
    raise ValueError(f"{text[:_SHOWN]!r} is not a rate: write for example 100/min, 5/s or 1000/30m.")


def format_rate(starts: int, period: timedelta) -> str:
    """Write a rate, as `parse_rate` reads it back."""
    span = format_exact(period)
    return f"{starts}/{_SHORT.get(span, span)}"
