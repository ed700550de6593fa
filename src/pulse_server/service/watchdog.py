"""Reaps jobs whose leases have expired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from pulse_server.clock import lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import Reaped
from pulse_server.loops import Loop
from pulse_server.repos.jobs import JobRepo

# One statement's worth of reaping; the watchdog goes on at once while it finds full batches.
REAP_BATCH = 1000

log = logging.getLogger(__name__)


class Watchdog:
    """Reaps expired leases, but never before workers had a whole lease TTL to send a heartbeat.

    After the database was away, or this process was frozen or not yet started, every lease looks expired
    though its worker is fine: no heartbeat could be stored. So it reaps only after one lease TTL in which the
    database answered every tick, in time, and stored every heartbeat. ADR-0010
    """

    def __init__(
        self,
        repo: JobRepo,
        publisher: Publisher,
        *,
        interval: timedelta,
        lease_ttl: timedelta,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._repo = repo
        self._publisher = publisher
        self._interval = interval
        self._lease_ttl = lease_ttl
        self._clock = clock
        self._steady_since: float | None = None
        self._last_answer = 0.0
        self.loop = Loop("watchdog", self.tick, interval)

    async def tick(self) -> None:
        asked_at = self._clock()
        try:
            database_now = await self._repo.database_now()
            took = timedelta(seconds=self._clock() - asked_at)
            if took > self._lease_ttl / 4:
                self.wait_again()  # the database or this process stood still for too long
            elif self._is_steady():
                await self._reap(database_now - took)
        except PulseError:
            self.wait_again()
            raise

    def wait_again(self) -> None:
        """Wait for a whole lease TTL before the next reap, counted from the next tick."""
        self._steady_since = None

    def _is_steady(self) -> bool:
        now = self._clock()
        was_frozen = now - self._last_answer > 2 * self._interval.total_seconds() + 1
        if self._steady_since is None or was_frozen:
            self._steady_since = now
        self._last_answer = now
        return now - self._steady_since >= self._lease_ttl.total_seconds()

    async def _reap(self, expired_before: datetime) -> None:
        while True:
            reaped = await self._repo.reap_expired(REAP_BATCH, expired_before)
            for entry in reaped:
                _log(entry)
            self._publisher.reaped(reaped)
            if len(reaped) < REAP_BATCH:
                return


def _log(entry: Reaped) -> None:
    log.warning(
        "lease_expired",
        extra={
            "job_id": entry.claim.job_id,
            "topic": entry.topic,
            "worker_id": entry.claim.worker_id,
            "attempt": entry.claim.attempt,
            "status": entry.status.value,
            "delivered": entry.delivered,
            "timed_out": entry.timed_out,
        },
    )
