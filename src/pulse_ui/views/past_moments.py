"""Moments as people type them: how long ago, or a date and time in their own zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = r"(\d{1,9})(min|[smhdw])"
_SPAN = re.compile(rf"(?:{_PART})+")
# What pulsed takes.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def past_moment(text: str, *, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment that `2h` or `2030-01-31 09:00` stands for. Raises ValueError with a sentence."""
    compact = re.sub(r"\s", "", text).lower()
    try:
        if _SPAN.fullmatch(compact):
            seconds = sum(int(number) * _UNITS[unit] for number, unit in re.findall(_PART, compact))
            moment = now - timedelta(seconds=seconds)
        else:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=zone)
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"“{text[:40]}” is no time: write how long ago, such as 15m, 2h or 3d, or 2030-01-31 09:00."
        ) from None
    if not _EARLIEST <= moment <= _LATEST:
        raise ValueError(f"“{text[:40]}” lies outside of the years 1970 to 2200.")
    return moment


def iso(moment: datetime) -> str:
    """Return the moment so that `past_moment` reads back the same one, whatever the zone."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
