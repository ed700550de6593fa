"""The port to the lease checks, which name the jobs to look at and when. ADR-0056"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.jobs import PageKey


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a look at a page of unfinished jobs found: how many there were, where it ended, how many of them
    ran without a lease check."""

    looked_at: int = 0
    reached: PageKey | None = None
    restored: int = 0


class LeaseCheckRepo(Protocol):
    async def settle_claims(self, limit: int, looking_back: timedelta | None = None) -> int:
        """Look at the claims that are a few seconds old, and keep the checks of those that still run.

        Returns how many checks there were, `limit` at the most. None: however old they are.
        """
        ...

    async def restore_lease_checks(self, *, after: PageKey | None, limit: int) -> Restoration:
        """Write the lease checks that are missing, for the oldest unfinished jobs after a place in the order
        of submission."""
        ...
