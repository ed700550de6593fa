"""Points in time: as they are typed, and in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from pulse_text.durations import parse_duration

EXAMPLES = "2030-01-31T09:00, 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z"
_SHOWN = 40  # characters of a wrong value, so that the sentence stays one line


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
