"""Dead letters in groups that died alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pulse_server.domain.jobs import Job


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one topic that died of the same error."""

    count: int
    first_at: datetime
    last_at: datetime
    sample: Job
    """The one that died last, without payload and history. The topic and the group are its own."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """Those that somebody joined last first, and how many there are, those that are left out included."""

    groups: tuple[DeadLetterGroup, ...] = ()
    total: int = 0
