"""Policies of topics: what an operator has set for the jobs of one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from pulse_server.domain.status import JobStatus

Kept: TypeAlias = timedelta | None
"""How long a finished job is kept. None: forever."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of a topic. A status that `kept` does not name is kept as the server's settings say."""

    topic: str
    kept: Mapping[JobStatus, Kept] = field(default_factory=dict)
    set_by: str = ""
    """The user of the last change; empty if the server has no users."""
    set_at: datetime | None = None
    """None: the topic has no policy."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Changes to a policy. Statuses that are in neither stay as they are."""

    kept: Mapping[JobStatus, Kept] = field(default_factory=dict)
    returned: frozenset[JobStatus] = frozenset()
    """Returned to the server's settings."""
