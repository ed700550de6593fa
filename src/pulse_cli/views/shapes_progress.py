"""The shape of progress in JSON output, as shapes.py has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_text.moments import iso

if TYPE_CHECKING:
    import pulse


def progress_shape(progress: pulse.Progress | None) -> dict[str, Any] | None:
    """How far an attempt has come. The cursor is null in lists."""
    if progress is None:
        return None
    remaining = progress.remaining
    return {
        "fraction": progress.fraction,
        "text": progress.text,
        "cursor": progress.cursor,
        "attempt": progress.attempt,
        "reported_at": None if progress.reported_at is None else iso(progress.reported_at),
        "remaining_seconds": None if remaining is None else round(remaining.total_seconds(), 3),
    }
