"""Points in time on a terminal: relative, or in the zone of this machine."""

from __future__ import annotations

from datetime import datetime, timedelta

from pulse_text.durations import format_duration

_NOTICEABLE = timedelta(seconds=1)


def ago(moment: datetime, present: datetime) -> str:
    """Write a moment for people: 3m ago, in 2h, now."""
    span = present - moment
    if abs(span) < _NOTICEABLE:
        return "now"
    # Whole seconds: tenths would be about the difference between two clocks.
    rounded = timedelta(seconds=round(abs(span).total_seconds()))
    return f"{format_duration(rounded)} ago" if span > timedelta(0) else f"in {format_duration(rounded)}"


def age(moment: datetime | None, present: datetime) -> str:
    """Write how long something has lasted: 3m, or – for what has not begun."""
    if moment is None:
        return "–"
    # Whole seconds, as in `ago`; and never less than nothing where the server's clock is ahead of this one.
    return format_duration(timedelta(seconds=max(round((present - moment).total_seconds()), 0)))


def local(moment: datetime) -> str:
    """Write a moment for people, in the time zone of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def full(moment: datetime, present: datetime) -> str:
    """Write a moment for people who want both: when it was, and how long ago."""
    return f"{local(moment)} ({ago(moment, present)})"
