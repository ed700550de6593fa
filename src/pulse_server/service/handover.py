"""Handing new jobs over: one that finds a free place in a worker is stored as already its own.

One statement instead of two, and no second round trip before the handler starts (docs/adr/0030).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import ClaimedJob, NewJob, Submitted
from pulse_server.repos.jobs import Taker
from pulse_server.service.claims import Claims


class Reservation(Protocol):
    """Places in workers, kept free for jobs that are about to be stored."""

    @property
    def takers(self) -> Sequence[Taker | None]:
        """Who is to take each job."""
        ...

    def settle(self, taken: Sequence[ClaimedJob]) -> None:
        """Hand these jobs to the workers that took them. The other places are free again."""
        ...


class Places(Protocol):
    def reserve(self, jobs: Sequence[NewJob]) -> Reservation | None:
        """Find places for the jobs in workers that wait for such. None if there is none at all."""
        ...


class Handover:
    def __init__(self, claims: Claims, places: Places) -> None:
        self._claims = claims
        self._places = places

    async def try_insert(self, jobs: Sequence[NewJob]) -> list[Submitted | PulseError] | None:
        """Store the jobs and hand over what can be. None if no worker waits, and nothing was stored."""
        reservation = self._places.reserve(jobs)
        if reservation is None:
            return None
        taken: Sequence[ClaimedJob] = ()
        try:
            if len({job.id for job in jobs}) < len(jobs):
                return None  # of two with one id it would have to be found out whose taker it is
            answers, taken = await self._claims.hand_over(jobs, reservation.takers)
        finally:
            reservation.settle(taken)
        return answers
