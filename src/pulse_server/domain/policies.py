"""Policies of topics: settings for the jobs of one topic, by operators and by workers' code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from pulse_server.domain.limits import NO_LIMIT_POLICY, LimitPolicy
from pulse_server.domain.run_policies import NO_RUN_POLICY, RunPolicy
from pulse_server.domain.status import TERMINAL, JobStatus

Kept: TypeAlias = timedelta | None
"""How long a finished job is kept. None: forever."""


def is_longer(one: Kept, other: Kept) -> bool:
    if other is None:
        return False
    return one is None or one > other


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
    before: Mapping[JobStatus, Kept] = field(default_factory=dict)
    """Longer durations from before the last change. They count until `shorter_from`."""
    shorter_from: datetime | None = None
    """When the shortened durations start to count. None: nothing was shortened lately."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Changes to a policy. Entries that they do not name stay unchanged."""

    kept: Mapping[JobStatus, Kept] = field(default_factory=dict)
    returned: frozenset[JobStatus] = frozenset()
    """Returned to the server's settings."""
    run: RunPolicy = NO_RUN_POLICY
    run_returned: frozenset[str] = frozenset()
    """Entries that return to the declared value."""
    limits: LimitPolicy = NO_LIMIT_POLICY
    limits_returned: frozenset[str] = frozenset()
    """The same for limits and lanes."""

    @property
    def changes_retention(self) -> bool:
        return bool(self.kept or self.returned)

    @property
    def changes_runs(self) -> bool:
        return bool(self.run_returned) or not self.run.is_empty

    @property
    def changes_limits(self) -> bool:
        return bool(self.limits_returned) or self.limits != NO_LIMIT_POLICY


@dataclass(frozen=True, slots=True)
class Grace:
    """How long the longer duration counts on after a retention was shortened."""

    span: timedelta = timedelta()
    settings: Mapping[JobStatus, Kept] = field(default_factory=dict)
    """How long the settings of the server keep jobs."""


def keep_anew(policy: TopicPolicy, change: PolicyChange, grace: Grace, now: datetime) -> TopicPolicy:
    """Return the policy with its retention changed.

    Entries that get shorter than what is in force start the grace time. Setting the same value again
    does not start it anew, and a value that is as long as what is in force ends it.
    """
    kept = {status: span for status, span in policy.kept.items() if status not in change.returned}
    kept |= change.kept
    counting = policy.before if policy.shorter_from is not None and policy.shorter_from > now else {}
    before: dict[JobStatus, Kept] = {}
    shorter_from = policy.shorter_from
    for status in TERMINAL:
        setting = grace.settings.get(status)
        old, new = (entries.get(status, setting) for entries in (policy.kept, kept))
        if old == new:
            if status in counting:
                before[status] = counting[status]
        elif grace.span and is_longer(in_force := counting.get(status, old), new):
            before[status] = in_force
            shorter_from = now + grace.span
    return replace(policy, kept=kept, before=before, shorter_from=shorter_from if before else None)
