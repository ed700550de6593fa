"""What the verbs that act on many jobs answer with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs matched, and when. Give `counted_at` as `before` to act on no more than these."""

    count: int
    counted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step of an action on many jobs did."""

    changed: int
    next_cursor: str | None
    """Give it to the next step; None when nothing that matches is left."""
    locked: int = 0
    """So many were left as they are: another session of the database has their rows. Try those again."""
