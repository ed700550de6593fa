"""The port to the lease checks. A lease check names jobs and when to look at them. ADR-0056"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.jobs import PageKey


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of one page of unfinished jobs: the number read, the last one, and the number of
    running jobs that lacked a lease check."""

    looked_at: int = 0
    reached: PageKey | None = None
    restored: int = 0


class LeaseCheckRepo(Protocol):
    async def settle_claims(self, limit: int, looking_back: timedelta | None = None) -> int:
        """Read claims that are a few seconds old, and keep checks only for jobs that still run.

        Returns the number of checks read, at most `limit`. `looking_back` bounds their age; None:
        any.
        """
        ...

    async def restore_lease_checks(self, *, after: PageKey | None, limit: int) -> Restoration:
        """Write missing lease checks for the oldest unfinished jobs after `after`, by
        submission."""
        ...
