"""Spans of time as people type them: 90s, 5m, 1h30m."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = r"([0-9]{1,9})(ms|s|min|m|h|d|w)"
_SPAN = re.compile(rf"(?:{_PART})+")


def parse_span(text: str) -> timedelta | None:
    """Return the span; None if the text is none. Raises OverflowError for one that is too long."""
    compact = re.sub(r"\s", "", text).lower()
    if not _SPAN.fullmatch(compact):
        return None
    total = sum(int(number) * _UNITS[unit] for number, unit in re.findall(_PART, compact))
    return timedelta(milliseconds=total)


def span_text(span: timedelta) -> str:
    """Write a span so that nothing is lost: what `parse_span` reads back."""
    milliseconds = span // timedelta(milliseconds=1)
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, _UNITS[unit])
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def interval_words(interval: timedelta) -> str:
    """Return how often: every 5 min, every 1 h 30 min. Nothing is rounded."""
    milliseconds = interval // timedelta(milliseconds=1)
    parts = []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")):
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return f"every {' '.join(parts)}"
