"""Makes known to all servers that a worker beats and its beats cannot be stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pulse_server import tuning
from pulse_server.domain.errors import PulseError
from pulse_server.loops import Loop
from pulse_server.repos.jobs import JobRepo


class SparedWorkers:
    """Records the workers in the database, for a lease each: no server reaps their jobs meanwhile. ADR-0042

    A beat that was recorded here counts for as long as one that was stored would, and for that worker alone.
    """

    def __init__(self, repo: JobRepo, lease_ttl: timedelta) -> None:
        self._repo = repo
        self._lease_ttl = lease_ttl
        self._waiting: dict[str, None] = {}
        self.loop = Loop("spared_workers", self.record, min(tuning.SPARING_INTERVAL, lease_ttl / 12))

    def spare(self, worker_ids: Iterable[str]) -> None:
        """Have these recorded soon. While that cannot be done it is tried again."""
        for worker_id in worker_ids:
            self._waiting.pop(worker_id, None)
            self._waiting[worker_id] = None
        while len(self._waiting) > tuning.SPARED_WORKERS:
            del self._waiting[next(iter(self._waiting))]

    async def record(self) -> None:
        """Record those that wait for it."""
        if not self._waiting:
            return
        worker_ids, self._waiting = self._waiting, {}
        try:
            await self._repo.spare_workers(worker_ids, self._lease_ttl)
        except PulseError:
            newer, self._waiting = self._waiting, worker_ids
            self.spare(newer)
            raise
