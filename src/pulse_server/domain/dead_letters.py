"""Dead letters in groups by their error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pulse_server.domain.jobs import Job


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one topic with the same error."""

    count: int
    first_at: datetime
    last_at: datetime
    sample: Job
    """The latest one, without payload and history. It has the topic and the group."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """The groups with the latest dead letters first, and the number of all groups, shown or not."""

    groups: tuple[DeadLetterGroup, ...] = ()
    total: int = 0
