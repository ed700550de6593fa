"""Durations and points in time as they are typed and written: 90s, 1h30m, and ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|min|m|s|h|d|w)"
_DURATION = re.compile(rf"(?:{_PART})+")
_SHOWN = 40  # characters of a wrong value, so that the sentence stays one line
_EXACT_BELOW = timedelta(days=30)  # hours no longer matter beyond
_EXPECTED = "write a number with a unit, such as 90s, 5m, 2h, 1h30m or 7d"


def parse_duration(text: str) -> timedelta:
    """Read a duration. Raises ValueError with a sentence."""
    compact = "".join(text.split()).lower()
    if not _DURATION.fullmatch(compact):
        raise ValueError(f"{text[:_SHOWN]!r} is not a duration: {_EXPECTED}.")
    try:
        parts = (float(number) * _UNITS[unit] for number, unit in re.findall(_PART, compact))
        return sum(parts, timedelta())
    except (OverflowError, ValueError):
        raise ValueError(f"{text[:_SHOWN]!r} is too long a duration.") from None


def format_duration(span: timedelta) -> str:
    """Write a duration in its two largest units: 850ms, 1.2s, 5m, 2h30m, 3d4h."""
    seconds = abs(span.total_seconds())
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = timedelta(seconds=round(seconds))
    for unit, smaller in (("d", "h"), ("h", "m"), ("m", "s")):
        if whole >= _UNITS[unit]:
            number, rest = divmod(whole, _UNITS[unit])
            rest_number = rest // _UNITS[smaller] if whole < _EXACT_BELOW else 0
            return f"{number}{unit}" + (f"{rest_number}{smaller}" if rest_number else "")
    return f"{round(seconds)}s"


def format_exact(span: timedelta) -> str:
    """Write a duration to the millisecond, as `parse_duration` reads it back."""
    rest = timedelta(milliseconds=round(span / _UNITS["ms"]))
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        number, rest = divmod(rest, _UNITS[unit])
        text += f"{number}{unit}" if number else ""
    return text or "0s"


EXAMPLES = "2030-01-31T09:00, 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z"


def now() -> datetime:
    """Return this machine's time, which relative times are relative to."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """Write a moment in ISO 8601, in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_moment(text: str, zone: tzinfo | None = None) -> datetime:
    """Read a moment; without an offset it is in `zone`, or in this machine's. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        return moment.astimezone(UTC if zone is not None else None)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:_SHOWN]!r} is not a time: write it as {EXAMPLES}.") from None


def parse_past_moment(text: str, *, present: datetime, zone: tzinfo | None = None) -> datetime:
    """Read how long ago, such as 2h, or a moment as `parse_moment` does. Raises ValueError."""
    try:
        return present - parse_duration(text)
    except OverflowError:
        raise ValueError(f"{text[:_SHOWN]!r} is before the first year.") from None
    except ValueError:
        pass
    try:
        return parse_moment(text, zone)
    except ValueError:
        raise ValueError(
            f"{text[:_SHOWN]!r} is not a time: write how long ago, such as 2h, or {EXAMPLES}."
        ) from None
