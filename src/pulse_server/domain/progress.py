"""How far an attempt has come: as its worker reports it, and as it is stored."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import NamedTuple

MAX_PROGRESS_TEXT = 200
MAX_CURSOR_BYTES = 4 * 1024


class ProgressReport(NamedTuple):
    """A handler's report. The number grows with each report of an attempt: the highest one wins."""

    fraction: float | None
    """Of the work, 0 to 1. None: not known."""
    text: str
    cursor: str | None
    """JSON; empty: none. None: as it was."""
    number: int

    @property
    def size(self) -> int:
        """About how many bytes it adds to a statement."""
        return len(self.text) * 4 + len(self.cursor or "") + 100


class Progress(NamedTuple):
    """Progress as stored, by the last attempt that reported any."""

    fraction: float | None
    text: str
    cursor: str
    """JSON; empty: none, or left out."""
    attempt: int
    reported_at: datetime
    since: datetime | None
    """When the fraction was `since_fraction`: the remaining time is estimated from both."""
    since_fraction: float


def clean_report(fraction: float | None, text: str, cursor: bytes | None, number: int) -> ProgressReport:
    """The report within its bounds. Nothing is refused: progress must not make a heartbeat fail."""
    if fraction is not None:
        fraction = min(1.0, max(0.0, fraction)) if math.isfinite(fraction) else None
    text = "".join(character if character.isprintable() else " " for character in text[:MAX_PROGRESS_TEXT])
    return ProgressReport(fraction, text, None if cursor is None else _clean_cursor(cursor), max(0, number))


def _clean_cursor(cursor: bytes) -> str | None:
    """The cursor as text, or None for one that cannot be stored: the last one stays."""
    if not cursor:
        return ""
    if len(cursor) > MAX_CURSOR_BYTES:
        return None
    try:
        text = cursor.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return text
