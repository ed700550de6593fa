"""The results of the verbs that count and change many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobCount:
    """The number of matching jobs. Pass `counted_at` as `before` to change these jobs and no later ones."""

    count: int
    counted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch of an action on many jobs."""

    changed: int
    next_cursor: str | None
    """Pass it to the next batch. None if no matching job is left."""
    locked: int = 0
    """The number of jobs left unchanged because another database session has locked their rows. Try again."""
    held: int = 0
    """The number of jobs that were not retried because another job holds their unique key."""
