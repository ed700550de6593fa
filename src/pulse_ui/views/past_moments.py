"""Moments as people type them: how long ago, or a date and time in their own zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pulse_ui.views import limits
from pulse_ui.views.spans import parse_span


def past_moment(text: str, *, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment that `2h` or `2030-01-31 09:00` stands for. Raises ValueError with a sentence."""
    try:
        if (span := parse_span(text)) is not None:
            moment = now - span
        else:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=zone)
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"“{text[:40]}” is no time: write how long ago, such as 15m, 2h or 3d, or 2030-01-31 09:00."
        ) from None
    if not limits.FIRST_MOMENT <= moment <= limits.LAST_MOMENT:
        raise ValueError(f"“{text[:40]}” lies outside of the years 1970 to 2200.")
    return moment


def iso(moment: datetime) -> str:
    """Return the moment so that `past_moment` reads back the same one, whatever the zone."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
