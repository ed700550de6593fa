"""How far an attempt has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse.messages import Reader
from pulse.payload import decode_json, encode
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has come, as its handler reported it with `ctx.progress`."""

    fraction: float | None
    """Of the work, 0 to 1. None: not known."""
    text: str = ""
    cursor: Any = None
    """Where the next attempt continues: JSON values. None in lists, which leave it out."""
    attempt: int = 1
    """The attempt that reported it."""
    reported_at: datetime | None = None
    since: datetime | None = None
    """The fraction was `since_fraction` then."""
    since_fraction: float = 0.0

    @property
    def remaining(self) -> timedelta | None:
        """About how long the rest takes, counted from `reported_at`. None if that cannot be estimated."""
        if self.fraction is None or self.since is None or self.reported_at is None:
            return None
        done, span = self.fraction - self.since_fraction, self.reported_at - self.since
        if done <= 0 or span <= timedelta(0):
            return timedelta(0) if self.fraction == 1 else None
        return min(span * ((1 - self.fraction) / done), _LONGEST_ESTIMATE)


# Longer estimates are useless, and might not fit into a datetime.
_LONGEST_ESTIMATE = timedelta(days=3650)


read_progress = Reader(Progress, cursor=lambda message: decode_json(message.cursor))
"""Returns the progress in a message."""


def progress_message(progress: Progress) -> pb.Progress:
    """Return the message, for a context that a test makes."""
    return pb.Progress(
        fraction=progress.fraction,
        text=progress.text,
        cursor=encode(progress.cursor),
        attempt=progress.attempt,
    )
