"""Leases in a server: heartbeats that extend them, and the loops that find expired leases. ADR-0056"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from pulse_server.base.ids import PageKey
from pulse_server.base.loops import Loop
from pulse_server.database.connections import Database
from pulse_server.dispatch.claims import SparedWorkers
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.leases import PostgresLeaseCheckRepo
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.service.leases import Leases
from pulse_server.service.watchdog import Watchdog
from pulse_server.settings import Settings
from pulse_server.topics.service import TopicRules

# A claim is two seconds old when it is settled: the checks of about three seconds of claims are unsettled.
SETTLE_INTERVAL = timedelta(seconds=1)
# Lease checks per statement. Each claim has one, of up to a thousand jobs; so has each hand-over.
SETTLE_BATCH = 500
# A tick looks at checks that became due since the last tick, and a little further back: a claim may
# commit late. While a transaction is held open, a full look walks all checks settled since.
SETTLE_MARGIN = timedelta(seconds=10)
# How often to look at all checks, since an earlier tick skips checks that another session has
# locked; and the largest share of the time for it.
SETTLE_EVERYTHING = timedelta(minutes=1)
SETTLE_EVERYTHING_SHARE = 0.05

# Jobs per statement: some 10 ms.
SWEEP_BATCH = 5000
# Time between two passes over the unfinished jobs: a job whose check was lost waits this long.
SWEEP_INTERVAL = timedelta(minutes=10)
# The share of one connection's time during a pass.
SWEEP_SHARE = 0.1

log = logging.getLogger(__name__)


class Settler:
    """Settles claims soon after they were made. Lease checks then name few jobs: jobs claimed in
    the last seconds, and jobs that run longer."""

    def __init__(
        self,
        repo: PostgresLeaseCheckRepo,
        *,
        interval: timedelta = SETTLE_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repo = repo
        self._clock = clock
        self._settled_at: float | None = None
        self._all_next_at = 0.0
        self.loop = Loop("settler", self.tick, interval)

    async def tick(self) -> None:
        began = self._clock()
        looking_back = None
        if self._settled_at is not None and began < self._all_next_at:
            looking_back = timedelta(seconds=began - self._settled_at) + SETTLE_MARGIN
        while await self._repo.settle_claims(SETTLE_BATCH, looking_back) == SETTLE_BATCH:
            pass
        self._settled_at = began
        if looking_back is None:
            took = self._clock() - began
            self._all_next_at = began + max(SETTLE_EVERYTHING.total_seconds(), took / SETTLE_EVERYTHING_SHARE)


class LeaseSweep:
    """Finds running jobs that no lease check names: the table was truncated, or restored from elsewhere.

    Walks all unfinished jobs in the order of their submission, one statement per tick.
    """

    def __init__(self, repo: PostgresLeaseCheckRepo, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._repo = repo
        self._clock = clock
        self._reached: PageKey | None = None
        self.loop = Loop("lease sweep", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> timedelta:
        """Look at one batch. Returns how long to rest: shortly within a pass, an interval after it."""
        began = self._clock()
        found = await self._repo.restore_lease_checks(after=self._reached, limit=SWEEP_BATCH)
        if found.restored:
            log.warning("lease_checks_restored", extra={"jobs": found.restored})
        self._reached = found.reached
        if found.looked_at < SWEEP_BATCH:
            self._reached = None
            return SWEEP_INTERVAL
        return timedelta(seconds=self._clock() - began) * (1 / SWEEP_SHARE - 1)


class LeaseKeeping:
    def __init__(
        self, settings: Settings, database: Database, repo: PostgresJobRepo, publisher: Publisher
    ) -> None:
        self._repo = repo
        self._publisher = publisher
        self._lease_ttl = settings.lease_ttl
        self.spared_workers = SparedWorkers(repo, settings.lease_ttl)
        self.watchdog = Watchdog(
            repo, publisher, interval=settings.watchdog_interval, lease_ttl=settings.lease_ttl
        )
        lease_checks = PostgresLeaseCheckRepo(database)
        self._settler = Settler(lease_checks)
        self._sweep = LeaseSweep(lease_checks)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.watchdog.loop, self._settler.loop, self._sweep.loop, self.spared_workers.loop)

    def leases(self, rules: TopicRules) -> Leases:
        """Make the service that extends leases. The rules have the time limits of attempts."""
        return Leases(
            self._repo,
            self._publisher,
            self.spared_workers,
            rules,
            self._lease_ttl,
            # Full disks and locks can keep heartbeats out of a database that answers each tick.
            failed=self.watchdog.wait_again,
        )
