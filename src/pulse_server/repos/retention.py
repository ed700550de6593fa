"""The port that deletes finished jobs once they have been kept long enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus


@dataclass(frozen=True, slots=True)
class Sweep:
    """One step of the walk: the number of jobs read, the last one, and the deleted jobs by
    status."""

    looked_at: int = 0
    reached: PageKey | None = None
    deleted: Mapping[JobStatus, int] = field(default_factory=dict)
    is_taken: bool = False
    """Another server runs the walk; this step read nothing."""


class RetentionRepo(Protocol):
    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        """Delete expired jobs among the oldest `limit` jobs after `after`, in submission order.

        `kept` has the durations for topics without a policy. The walk is over when a step reads
        fewer than `limit` jobs: later jobs are too young.
        """
        ...

    async def forget_periods(self, limit: int) -> int:
        """Delete expired periods of throttled keys. Returns their number, at most `limit`."""
        ...
