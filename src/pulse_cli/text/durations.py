"""Durations as people write them: 90s, 5m, 2h, 1h30m."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)"
_DURATION = re.compile(rf"(?:{_PART})+")
_EXACT_DAYS = 30  # beyond that, nobody asks for hours
_EXPECTED = "write a number with a unit, such as 90s, 5m, 2h, 1h30m or 7d"


def parse_duration(text: str) -> timedelta:
    """Read a duration. Raises ValueError with a sentence."""
    compact = text.replace(" ", "").lower()
    if not _DURATION.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration: {_EXPECTED}.")
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in re.findall(_PART, compact)))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than anyone can wait.") from None


def format_duration(span: timedelta) -> str:
    """Write a duration for people, in its two largest units: 850ms, 1.2s, 5m, 2h30m, 3d4h."""
    seconds = abs(span.total_seconds())
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, smaller in (("d", "h"), ("h", "m"), ("m", "s")):
        size = int(_UNITS[unit])
        if whole >= size:
            rest = whole % size // int(_UNITS[smaller]) if whole < _EXACT_DAYS * _UNITS["d"] else 0
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"


def format_exact(span: timedelta) -> str:
    """Write a duration so that nothing is lost: what `parse_duration` reads back."""
    milliseconds = round(span.total_seconds() * 1000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        size = round(_UNITS[unit] * 1000)
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
