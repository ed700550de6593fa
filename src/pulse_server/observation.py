"""Observation of a server: readiness, health, metrics, and the ports that publish them."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from pulse_server.access.service import Access
from pulse_server.base.exposition import Exposition
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Labels, Metrics
from pulse_server.database.connections import Database
from pulse_server.database.schema import require_usable_schema
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.service import Gate
from pulse_server.doors.http import METRICS_PATH, HttpServer, ProcessPages, Readiness, behind_login
from pulse_server.doors.tls import Certificates
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.settings import Settings
from pulse_server.topics.store import PostgresLimitRepo
from pulse_server.transport.grpc.health import Health
from pulse_server.views.attention import Attention
from pulse_server.views.servers import Servers
from pulse_server.views.statistics import Topics
from pulse_server.views.vitals import Horizon, Space, Vitals, VitalsQueries

# How old the gauges of the database may be: about the interval of a usual scrape (ADR-0025).
VITALS_INTERVAL = timedelta(seconds=15)
# How often to look for old snapshots: one small statement, also without scrapes.
HORIZON_INTERVAL = timedelta(seconds=15)
# A dump or a report may hold its snapshot for that long; a longer one was forgotten, or does not belong in a
# queue's database. At 1,000 jobs/s a claim takes some 60 ms more by then. Logged again when twice as old.
HELD_BACK_PATIENCE = timedelta(minutes=5)
# How soon a full disk is known: the file that is written takes some 3 ms.
SPACE_INTERVAL = timedelta(seconds=15)
# How soon a load balancer learns that the database went away, or came back.
READY_INTERVAL = timedelta(seconds=2)
# The schema changes when an operator migrates; the check costs a connection.
SCHEMA_INTERVAL = timedelta(seconds=30)

log = logging.getLogger(__name__)


class Observation:
    """Readiness, gRPC's health and the watches for old snapshots and full disks always run. Vitals run
    only if there is a port to publish them on."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        gate: Gate,
        roster: Roster,
        servers: Servers,
        metrics: Metrics,
    ) -> None:
        queries = VitalsQueries(database)
        self._settings = settings
        self._database = database
        self._gate = gate
        self._servers = servers
        self._metrics = metrics
        self.health = Health()
        self.readiness = Readiness(
            queries.ping,
            partial(require_usable_schema, database.probe),
            lambda: gate.is_primed,
            changed=self.health.set,
            interval=READY_INTERVAL,
            schema_interval=SCHEMA_INTERVAL,
        )
        self.vitals = Vitals(queries, metrics, interval=VITALS_INTERVAL)
        self.horizon = Horizon(
            queries.oldest_holder, metrics, interval=HORIZON_INTERVAL, patience=HELD_BACK_PATIENCE
        )
        self.space = Space(queries.write_temporary_file, metrics, servers.now, interval=SPACE_INTERVAL)
        self._http: HttpServer | None = None
        self.http_address: str | None = None
        _read_gauges(metrics, database, gate, roster, self.readiness)

    @property
    def loops(self) -> tuple[Loop, ...]:
        has_readers = self._settings.http_address is not None
        always = (self.readiness.loop, self.horizon.loop, self.space.loop)
        return (*always, self.vitals.loop) if has_readers else always

    def attention(self, limits: PostgresLimitRepo, schedules: PostgresScheduleRepo) -> Attention:
        """Return what finds the trouble that operators have to see."""
        topics = Topics(self._database)
        return Attention(self._database, topics, self._servers, self._gate, limits, schedules, self.space)

    async def open(self, access: Access | None, certificates: Certificates | None) -> None:
        """Open the HTTP port, if one is set: alive, and not ready yet."""
        if self._settings.http_address is None:
            return
        pages = ProcessPages(self.readiness, Exposition(self._metrics)).pages
        if self._settings.metrics_need_login and access is not None:
            pages[METRICS_PATH] = behind_login(pages[METRICS_PATH], access.authenticator)
        tls = certificates.server_ssl_context() if certificates is not None else None
        self._http = HttpServer(pages)
        self.http_address = await self._http.start(self._settings.http_address, tls)

    async def serve(self) -> None:
        """Become ready, if the database is."""
        await self.readiness.tick()
        self.readiness.serve()

    def drain(self) -> None:
        """Report at once that this server is no longer ready."""
        self.readiness.drain()
        self.health.end()

    async def close(self) -> None:
        if self._http is not None:
            await self._http.stop()


def _read_gauges(
    metrics: Metrics, database: Database, gate: Gate, roster: Roster, readiness: Readiness
) -> None:
    def connections() -> dict[Labels, float]:
        return {
            (pool, state): float(number)
            for pool, connections in database.pools.items()
            for state, number in zip(("open", "busy", "allowed"), connections.use, strict=True)
        }

    def paused() -> dict[Labels, float]:
        switches: dict[Labels, float] = {("",): float(gate.state.everything is not None)}
        return switches | {(topic,): 1.0 for topic in gate.state.topics}

    metrics.connections.read = connections
    metrics.dispatch_paused.read = paused
    metrics.workers.read = lambda: {(): roster.census().workers}
    metrics.workers_capacity.read = lambda: {(): roster.census().capacity}
    metrics.workers_held.read = lambda: {(): roster.census().held}
    metrics.ready_to_serve.read = lambda: {(): float(readiness.is_ready)}
