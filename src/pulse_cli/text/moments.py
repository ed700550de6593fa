"""Points in time: relative for people, ISO 8601 for programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pulse_cli.text.durations import format_duration

EXAMPLES = "2030-01-31T09:00, 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z"
_NOTICEABLE = timedelta(seconds=1)


def now() -> datetime:
    """Return this machine's time, which is what relative times are relative to."""
    return datetime.now(UTC)


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


def iso(moment: datetime) -> str:
    """Write a moment for programs, in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def local(moment: datetime) -> str:
    """Write a moment for people, in the time zone of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def full(moment: datetime, present: datetime) -> str:
    """Write a moment for people who want both: when it was, and how long ago."""
    return f"{local(moment)} ({ago(moment, present)})"


def parse_moment(text: str) -> datetime:
    """Read a moment; without a zone it is meant in the time of this machine. Raises ValueError."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time: write it as {EXAMPLES}.") from None
