"""Time zones that this machine knows."""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
UTC = ZoneInfo("UTC")


@lru_cache(maxsize=256)
def zone_named(name: str) -> ZoneInfo:
    """Return the zone of that name, or UTC if there is none."""
    if not _NAME.fullmatch(name) or len(name) > 64:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return UTC


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return the names of all zones, in order."""
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))
