"""The port to completed jobs by the day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept


@dataclass(frozen=True, slots=True)
class CompletedDays:
    """The days that have a partition, and the policies that count for completed jobs, at a moment."""

    now: datetime
    days: Sequence[date]
    kept: Sequence[Kept]
    """By policies of topics. None: forever."""
    set_at: datetime | None
    """When the last policy was set; None if there is none."""


@dataclass(frozen=True, slots=True)
class DaySweep:
    """What one step of a walk over a partition did."""

    looked_at: int = 0
    reached: PageKey | None = None
    changed: int = 0
    """Deleted, or moved."""
    left_over: int = 0
    """Looked at and not moved, for lack of room."""
    is_taken: bool = False
    """Another server is at it, or a lock is held for longer: nothing was looked at."""


class CompletedDayRepo(Protocol):
    async def add_completed_days(self, count: int) -> Sequence[date]:
        """Make the missing partitions of today and the next days. Returns the days that were made."""
        ...

    async def completed_days(self) -> CompletedDays: ...

    async def delete_expired_completed(
        self, partition: str, kept: Kept, *, after: PageKey | None, limit: int
    ) -> DaySweep:
        """Delete jobs of the partition that were kept for as long as their topic's policy says, or `kept`.

        Of a day only jobs whose topic has a policy: the others go with the day.
        """
        ...

    async def keep_longer(
        self, day: date, kept: Kept, *, after: PageKey | None, limit: int, without_policy: bool
    ) -> DaySweep:
        """Move jobs out of the day's partition whose topic's policy keeps them for longer than `kept`.

        With `without_policy` also the other jobs, if they are still kept.
        """
        ...

    async def drop_completed_day(self, day: date, unless_policy_since: datetime) -> int | None:
        """Drop the partition. Returns about how many jobs it had; None if it was not dropped.

        That is: there is none, it is in use, or a policy was set since that moment.
        """
        ...
