"""Policies of topics: settings for the jobs of one topic, by operators and by workers' code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from pulse_server.domain.flow import NO_FLOW_POLICY, FlowPolicy
from pulse_server.domain.run_policies import NO_RUN_POLICY, RunPolicy
from pulse_server.domain.status import JobStatus

Kept: TypeAlias = timedelta | None
"""How long a finished job is kept. None: forever."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of a topic. The server's settings hold for entries that it does not name."""

    topic: str
    kept: Mapping[JobStatus, Kept] = field(default_factory=dict)
    """How long its finished jobs are kept, by status."""
    set_by: str = ""
    """The user of the last change by an operator; empty if the server has no users."""
    set_at: datetime | None = None
    """None: no operator has set anything."""
    run: RunPolicy = NO_RUN_POLICY
    """Entries that operators have set."""
    declared: RunPolicy = NO_RUN_POLICY
    """Entries that the code of a worker declares."""
    declared_by: str = ""
    """The worker."""
    declared_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Changes to a policy. Entries that they do not name stay unchanged."""

    kept: Mapping[JobStatus, Kept] = field(default_factory=dict)
    returned: frozenset[JobStatus] = frozenset()
    """Returned to the server's settings."""
    run: RunPolicy = NO_RUN_POLICY
    run_returned: frozenset[str] = frozenset()
    """Entries that return to the declared value."""
    flow: FlowPolicy = NO_FLOW_POLICY
    flow_returned: frozenset[str] = frozenset()
    """The same for limits and lanes."""

    @property
    def changes_retention(self) -> bool:
        return bool(self.kept or self.returned)

    @property
    def changes_runs(self) -> bool:
        return bool(self.run_returned) or not self.run.is_empty

    @property
    def changes_flow(self) -> bool:
        return bool(self.flow_returned) or self.flow != NO_FLOW_POLICY
