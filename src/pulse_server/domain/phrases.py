"""Phrases of sentences about jobs and topics: counts, durations, moments, texts of users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

_LONGEST_TEXT = 200
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def plural(count: int, one: str, many: str | None = None) -> str:
    """The count with its noun: 1 job, 1,200 jobs."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share in percent: 12%; 100% only for all."""
    return f"{100 if share >= 1 else min(99, max(1, round(share * 100)))}%"


def come(count: int, noun: str) -> str:
    """1 job comes, 2 jobs come."""
    return f"{plural(count, noun)} come{'s' if count == 1 else ''}"


def ended(sentence: str) -> str:
    """The sentence with a full stop. A text of a user may have one."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def cut(text: str, most: int = _LONGEST_TEXT) -> str:
    """The first line, or the last of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    line = lines[-1] if lines[0].startswith("Traceback ") else lines[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def clock(moment: datetime, now: datetime) -> str:
    """09:12:30 UTC, with the date if it is another day."""
    moment = moment.astimezone(UTC)
    is_today = moment.date() == now.astimezone(UTC).date()
    return moment.strftime("%H:%M:%S UTC" if is_today else "%Y-%m-%d %H:%M:%S UTC")


def span(length: timedelta) -> str:
    """400ms, 18s, 3m57s, 2h5m: two units at the most."""
    if length < timedelta(seconds=1):
        return f"{max(round(length.total_seconds() * 1000), 0)}ms"
    rest = round(length.total_seconds())
    for (unit, size), (smaller, part) in pairwise(_UNITS):
        if rest >= size:
            more = rest % size // part
            return f"{rest // size}{unit}" + (f"{more}{smaller}" if more else "")
    return f"{rest}s"
