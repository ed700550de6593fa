"""Reaps jobs whose leases have expired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.rules import Reaped
from pulse_server.jobs.store import PostgresJobRepo

# In lease TTLs: how long a database that answers, but late or with failures in between, delays reaping.
MOST_CAUTION = 3
# In lease TTLs: how long ago the last failed tick must be by then. Within that time each living worker has
# sent a heartbeat: it repeats one that failed within a second, or half a heartbeat interval.
LEAST_CALM = 0.5
# Jobs per statement. The watchdog continues at once while it finds full batches.
REAP_BATCH = 1000

log = logging.getLogger(__name__)


class Watchdog:
    """Reaps expired leases, but never before workers had a whole lease TTL to send a heartbeat.

    After the database was away, or this process was frozen or not yet started, every lease looks expired
    though its worker is fine: no heartbeat could be stored. So it reaps only after one lease TTL in which the
    database answered every tick, in time, and stored every heartbeat. After a start or a freeze the time
    counts in which other servers reached the database. While the database answers late, or fails again and
    again, it reaps after `MOST_CAUTION`, of the time in which the database answers. ADR-0010, ADR-0072
    """

    def __init__(
        self,
        repo: PostgresJobRepo,
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
        # Since when no tick has failed.
        self._answering_since: float | None = None
        # For how long the database has answered since the last reap.
        self._answered = timedelta()
        self._counts_others = True
        self._ended_at: float | None = None
        self.loop = Loop("watchdog", self.tick, interval)

    async def tick(self) -> None:
        asked_at = self._clock()
        if self._ended_at is None or asked_at - self._ended_at > 2 * self._interval.total_seconds() + 1:
            self.wait_again()  # this process has just started, or was frozen
            self._answering_since = None
            self._counts_others = True
            self._ended_at = None
        try:
            database_now = await self._repo.database_now()
            answered_at = self._clock()
            if self._ended_at is not None:
                self._answered += timedelta(seconds=answered_at - self._ended_at)
            took = timedelta(seconds=answered_at - asked_at)
            if await self._may_reap(took):
                await self._reap(database_now - took)
                self._answered = timedelta()
        except PulseError:
            self.wait_again()
            self._answering_since = None
            raise
        finally:
            self._ended_at = self._clock()
            if self._is_late(timedelta(seconds=self._ended_at - asked_at)):
                self._steady_since = None

    def wait_again(self) -> None:
        """Wait for a whole lease TTL before the next reap, counted from the next tick.

        Repeated again and again, this delays a reap by `MOST_CAUTION`.
        """
        self._steady_since = None
        self._counts_others = False

    async def _may_reap(self, took: timedelta) -> bool:
        now = self._clock()
        if self._answering_since is None:
            self._answering_since = now
        if self._steady_since is None or self._is_late(took):
            self._steady_since = now
        steady_for = timedelta(seconds=now - self._steady_since)
        if self._counts_others and steady_for < self._lease_ttl:
            steady_for = await self._repo.steady_for(steady_for)
        if self._steady_since is None:  # a heartbeat could not be stored meanwhile
            return False
        if steady_for >= self._lease_ttl:
            return True
        calm_for = timedelta(seconds=now - self._answering_since)
        return calm_for >= LEAST_CALM * self._lease_ttl and self._answered >= MOST_CAUTION * self._lease_ttl

    def _is_late(self, took: timedelta) -> bool:
        """Whether the database or this process may have stood still for too long."""
        return took > self._lease_ttl / 4

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
