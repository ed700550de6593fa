"""Leases in a server: heartbeats that extend them, and the loops that find expired leases."""

from __future__ import annotations

from pulse_server.dispatch.claims import SparedWorkers
from pulse_server.dispatch.publisher import Publisher
from pulse_server.loops import Loop
from pulse_server.postgres.database import Database
from pulse_server.postgres.lease_checks import PostgresLeaseCheckRepo
from pulse_server.reads.servers import Sparing
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.lease_checks import LeaseSweep, Settler
from pulse_server.service.leases import Leases
from pulse_server.service.run_policies import RunPolicies
from pulse_server.service.watchdog import Watchdog
from pulse_server.settings import Settings


class LeaseKeeping:
    def __init__(self, settings: Settings, database: Database, repo: JobRepo, publisher: Publisher) -> None:
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

    def leases(self, policies: RunPolicies) -> Leases:
        """Make the service that extends leases. The policies have the time limits of attempts."""
        return Leases(
            self._repo,
            self._publisher,
            self.spared_workers,
            policies,
            self._lease_ttl,
            # Full disks and locks can keep heartbeats out of a database that answers each tick.
            failed=self.watchdog.wait_again,
        )


def sparing_of(settings: Settings) -> Sparing:
    """Return how long the workers of a silent server are spared.

    A server is silent for less time than any lease has left when it counts as cut off.
    """
    silence = (settings.lease_ttl - settings.heartbeat_interval) * 3 / 4
    return Sparing(silence, 2 * settings.lease_ttl, settings.lease_ttl)
