"""What the promoter finds: jobs whose time has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pulse_server.domain.jobs import Level


@dataclass(frozen=True, slots=True)
class Promotion:
    """The promoter's result: topics with new ready jobs, and the time until the next job is due."""

    promoted: int
    topics: frozenset[str]
    next_due_in: timedelta | None
    levels: tuple[Level, ...] = field(default=(), compare=False)  # where they are, and since when


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a walk over topics: promoted topics, and where the next walk continues."""

    topics: frozenset[str]
    last_topic: str
    levels: tuple[Level, ...] = field(default=(), compare=False)  # where they are, and since when
