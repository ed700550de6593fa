"""The port to the partitions of completed jobs, one per day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept


@dataclass(frozen=True, slots=True)
class CompletedDays:
    """The days that have a partition, and the policies for completed jobs, at time `now`."""

    now: datetime
    days: Sequence[date]
    kept: Sequence[Kept]
    """Durations set by topic policies. None: forever."""
    set_at: datetime | None
    """When the last policy was set; None if there is none."""


@dataclass(frozen=True, slots=True)
class DaySweep:
    """The result of one step of a walk over a partition."""

    looked_at: int = 0
    reached: PageKey | None = None
    changed: int = 0
    """The number of jobs deleted or moved."""
    left_over: int = 0
    """Jobs that had to move but did not fit into this step."""
    is_taken: bool = False
    """Another server walks this partition, or a lock is held too long. The step did nothing."""


class CompletedDayRepo(Protocol):
    async def add_completed_days(self, count: int) -> Sequence[date]:
        """Make the missing partitions for today and the next days. Returns the new days."""
        ...

    async def completed_days(self) -> CompletedDays: ...

    async def delete_expired_completed(
        self, partition: str, kept: Kept, *, after: PageKey | None, limit: int
    ) -> DaySweep:
        """Delete jobs of the partition past the duration in their topic's policy, or past `kept`.

        In a day's partition this only deletes jobs whose topic has a policy. Dropping the day
        deletes the rest.
        """
        ...

    async def keep_longer(
        self, day: date, kept: Kept, *, after: PageKey | None, limit: int, without_policy: bool
    ) -> DaySweep:
        """Move jobs out of the day's partition if their topic's policy keeps them past `kept`.

        With `without_policy`, also move unexpired jobs of topics without a policy.
        """
        ...

    async def drop_completed_day(self, day: date, unless_policy_since: datetime) -> int | None:
        """Drop the partition. Returns about how many jobs it had, or None if it was not dropped.

        It is not dropped if it does not exist, is in use, or a policy was set since
        `unless_policy_since`.
        """
        ...
