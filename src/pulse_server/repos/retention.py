"""The port through which finished jobs are deleted once they have been kept long enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one step of the walk did: how many jobs it looked at, where it stopped, what it deleted."""

    looked_at: int = 0
    reached: PageKey | None = None
    deleted: Mapping[JobStatus, int] = field(default_factory=dict)
    is_taken: bool = False
    """Another replica is at it: nothing was looked at."""


class RetentionRepo(Protocol):
    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        """Delete those whose time is over, of the oldest jobs after a place in the order of submission.

        `kept` says how long a finished job is kept, unless its topic has a policy of its own. The
        walk is over when fewer than `limit` were looked at: what follows is too young.
        """
        ...

    async def forget_periods(self, limit: int) -> int:
        """Delete throttled keys whose period is over. Returns how many, at most `limit`."""
        ...
