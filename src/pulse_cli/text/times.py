"""Points in time on a terminal: relative, or in the zone of this machine."""

from __future__ import annotations

from datetime import datetime, timedelta

from pulse_text.durations import format_duration

_NOTICEABLE = timedelta(seconds=1)


def ago(moment: datetime, present: datetime) -> str:
    """Return a moment relative to now: 3m ago, in 2h, now."""
    span = present - moment
    if abs(span) < _NOTICEABLE:
        return "now"
    # Whole seconds: tenths would show the difference between two clocks.
    rounded = timedelta(seconds=round(abs(span).total_seconds()))
    return f"{format_duration(rounded)} ago" if span > timedelta(0) else f"in {format_duration(rounded)}"


def age(moment: datetime | None, present: datetime) -> str:
    """Return how long something has lasted: 3m, or – if it has not begun."""
    if moment is None:
        return "–"
    # Whole seconds, as in `ago`; never negative where the server's clock is ahead of this one.
    return format_duration(timedelta(seconds=max(round((present - moment).total_seconds()), 0)))


def local(moment: datetime) -> str:
    """Return a moment in the time zone of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def full(moment: datetime, present: datetime) -> str:
    """Return a moment in both forms: the time, and how long ago."""
    return f"{local(moment)} ({ago(moment, present)})"
