"""The composition root: makes the rooms of a server, starts them, and stops them in order."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc.aio

from pulse_server.access.service import Access
from pulse_server.base import tuning
from pulse_server.base.errors import PulseError
from pulse_server.base.exposition import Exposition
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Labels, Metrics
from pulse_server.database.connections import Database
from pulse_server.database.rights import OUTAGE_PATIENCE, through_outages, wait_until_reachable
from pulse_server.database.schema import require_usable_schema
from pulse_server.dispatch import dispatch_of
from pulse_server.dispatch.publisher import IS_INSTALLED, Publisher, claim_spans
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.service import Gate
from pulse_server.doors.admission import doors_of
from pulse_server.doors.callers import AccessRpcs
from pulse_server.doors.http import METRICS_PATH, HttpServer, ProcessPages, Readiness, behind_login
from pulse_server.doors.ports import Certificates, doors, warn_of_open_doors
from pulse_server.failpoints import with_failpoints
from pulse_server.schedules import schedules_of
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.server import Health, grpc_server, listen
from pulse_server.settings import Settings
from pulse_server.steps import steps_of
from pulse_server.supervisor import Lifeline, longest_drain
from pulse_server.topics import topics_of
from pulse_server.topics.store import PostgresLimitRepo
from pulse_server.views import servers_of, views_of
from pulse_server.views.attention import Attention
from pulse_server.views.records import Audit
from pulse_server.views.servers import Servers
from pulse_server.views.statistics import Topics
from pulse_server.views.vitals import Horizon, Space, Vitals, VitalsQueries
from pulse_server.wakeups import Foundation, foundation_of
from pulse_server.wakeups.line import NoWakeupLine
from pulse_server.work import work_of
from pulse_server.workflows import workflows_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


# ---------------------------------------------------------------- observation
# Observation of a server: readiness, health, metrics, and the ports that publish them.

# How old the gauges of the database may be: about the interval of a usual scrape (docs/figures.md#vitals).
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

    def __init__(self, base: Foundation, gate: Gate, roster: Roster, servers: Servers) -> None:
        metrics, database = base.metrics, base.database
        queries = VitalsQueries(database)
        self._settings = base.settings
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


# ---------------------------------------------------------------- app
# The composition root: wires stores to services to transport, starts them, and stops them in order.

# Delay between the first rounds of the loops. Most loops run about every second. Staggered, they
# share one or two connections; together, each would open its own connection. The first statements
# of a session take some 10 ms, and more if the database is far away.
LOOP_STAGGER = timedelta(milliseconds=50)
# For the last statements: the statistics, and the end of this server. Neither is needed.
FAREWELL_TIMEOUT = timedelta(seconds=1)


class App:
    """One pulsed on one database. Nothing in it is needed for correctness: it may die at any instruction."""

    def __init__(
        self,
        settings: Settings,
        dsn: str,
        *,
        database: Database | None = None,
        line: NoWakeupLine | None = None,
        make_server: Callable[..., grpc.aio.Server] = grpc.aio.server,
    ) -> None:
        """The testing kit has a database of its own kind, no other servers, and a server without a port."""
        self._settings = settings
        self.metrics = metrics = Metrics()
        self._database = database or Database(dsn, metrics, behind_pooler=settings.behind_pooler)
        base = foundation_of(settings, self._database, with_failpoints, metrics, line)
        self._line, self.watchers = base.line, base.watchers
        roster = Roster(settings.lease_ttl, base.line)
        servers = servers_of(base, roster)
        publisher = Publisher(
            metrics,
            base.watchers,
            roster,
            base.line,
            claim_spans(),
            nudge_settler=lambda: self.workflows.settler.loop.nudge(),
        )
        audit = Audit(base.database)
        limits = with_failpoints(PostgresLimitRepo(base.database))
        self.doors = doors = doors_of(settings, audit.record_calls, metrics)
        self.dispatch = dispatch = dispatch_of(
            base, limits, roster, publisher, doors.callers, servers.connections_of
        )
        self.topics = topics = topics_of(
            base,
            limits,
            dispatch,
            doors.callers,
            workers_by_topic=servers.workers_by_topic,
            topics_of_workers=servers.topics_of,
        )
        self.steps = steps = steps_of(base, publisher, doors.callers)
        self.work = work = work_of(base, dispatch, topics, steps, doors)
        self.schedules = schedules = schedules_of(base, publisher, topics, work.jobs, doors.callers)
        self.workflows = workflows = workflows_of(base, dispatch, topics, work.jobs, doors.lines)
        self.observation = Observation(base, dispatch.gate, roster, servers)
        attention = self.observation.attention(limits, schedules.store)
        self.views = views = views_of(base, servers, attention, audit, dispatch, topics, doors)
        self._server = grpc_server(
            make_server,
            jobs=work.job_rpcs,
            selections=work.selection_rpcs,
            exports=views.export_rpcs,
            awaiting=work.awaiting_rpcs,
            work=work.worker_rpcs,
            schedules=schedules.rpcs,
            dispatch=dispatch.rpcs,
            topics=topics.rpcs,
            steps=steps.rpcs,
            workflows=workflows.rpcs,
            overview=views.overview_rpcs,
            audit=views.audit_rpcs,
            access=AccessRpcs(doors.callers),
            doors=doors,
            metrics=metrics,
            clock=servers.now,
            shares_port=settings.shares_port,
            health=self.observation.health,
            reflection=settings.reflection,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Accept calls. Returns the address, with the port that was really taken."""
        await self.observation.open(self.doors.access, self.doors.certificates)
        # Primed before the first worker can ask: a server that cannot read the switch must not start.
        await through_outages(self._database.connector.dsn, self._prime)
        port = listen(self._server, self._settings.grpc_address, self.doors.certificates)
        self.doors.connections.port = port
        await self._server.start()
        await self.observation.serve()
        runs = [self.dispatch.hub.run()]
        for place, loop in enumerate(self._loops()):
            loop.report_to(self.metrics)
            runs.append(loop.run(after=place * LOOP_STAGGER))
        self._tasks = [asyncio.create_task(run) for run in (*runs, self._line.run())]
        return f"{self._settings.grpc_address.rpartition(':')[0]}:{port}"

    async def _prime(self) -> None:
        await self.dispatch.gate.refresh()
        await self.topics.settings.prime()
        await self.work.retention.prepare()

    async def stop(self) -> None:
        """Stop claiming, release undelivered jobs, let calls under way finish, then close."""
        self.observation.drain()
        self.watchers.end_watching()
        await self.dispatch.hub.drain(tuning.STREAM_GOODBYE)
        self.doors.lines.end()
        await self._server.stop(self._settings.drain_timeout.total_seconds())
        # A submit that was under way may have handed a job over to a worker that is gone by now.
        await self.dispatch.claims.finish_releases(tuning.STREAM_GOODBYE)
        for loop in self._loops():
            loop.stop()
        *loops, line = self._tasks
        line.cancel()
        await asyncio.wait(loops, timeout=tuning.STATEMENT_TIMEOUT.total_seconds())
        for task in loops:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(PulseError, TimeoutError):
            async with asyncio.timeout(FAREWELL_TIMEOUT.total_seconds()):
                await self.views.servers.leave()
                await self.views.statistics.record_news()
                await self.doors.counted_calls.flush()
        await self.observation.close()
        self.doors.close()
        await self._database.close()

    def read_again(self) -> None:
        """Reload the file of users and the certificate, which may change while the server runs."""
        self.doors.read_again()

    def _loops(self) -> tuple[Loop, ...]:
        return (
            *self.work.loops,
            *self.workflows.loops,
            *self.schedules.loops,
            *self.dispatch.loops,
            *self.topics.loops,
            *self.steps.loops,
            *self.views.loops,
            self.watchers.loop,
            *self.observation.loops,
            *self.doors.loops,
        )


@asynccontextmanager
async def running_app(settings: Settings, dsn: str) -> AsyncIterator[tuple[App, str]]:
    """A server that accepts calls for as long as the block lasts."""
    app = App(settings, dsn)
    address = await app.start()
    try:
        yield app, address
    finally:
        await app.stop()


# ---------------------------------------------------------------- exporting
# Sends the spans of this process to a collector, if the usual variables of OpenTelemetry name one.

# Time for the last spans to reach their collector. A longer exit would look like a hang.
TRACE_FLUSH_TIMEOUT = timedelta(seconds=2)

_EXPORTERS = {
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}


class _UnknownProtocol(Exception):
    """No exporter speaks it."""


@asynccontextmanager
async def traces_exported(environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Export spans during the block, unless it is not configured or a provider is set already.

    Any failure is logged as a warning: a server without traces is better than none.
    """
    provider = None
    if endpoint := _endpoint_variable(environ):
        try:
            provider = _set_provider(environ)
        except _UnknownProtocol as error:
            log.warning("traces_not_exported", extra={"reason": str(error)})
        except ModuleNotFoundError as error:
            log.warning("traces_not_exported", extra={"reason": _missing(endpoint, error)})
        except Exception as error:
            reason = f"{endpoint} is set, but the exporter did not start ({type(error).__name__})."
            log.warning("traces_not_exported", extra={"reason": reason})
    try:
        yield
    finally:
        if provider is not None:
            await _shut_down(provider)


def _endpoint_variable(environ: Mapping[str, str]) -> str | None:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() not in ("", "otlp"):
        return None
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((name for name in names if environ.get(name)), None)


def _set_provider(environ: Mapping[str, str]) -> TracerProvider | None:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # as under opentelemetry-instrument, which exports as well
    exporter, protocol = _exporter(environ)
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "pulsed"}))
    # Its own exit handler would wait for a dead collector without a limit.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    log.info("exporting_traces", extra={"protocol": protocol})
    return provider


def _exporter(environ: Mapping[str, str]) -> tuple[Any, str]:
    """The exporter for the configured protocol, else for the first that is installed."""
    asked = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if asked:
        if (module := _EXPORTERS.get(asked.strip())) is None:
            raise _UnknownProtocol(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {asked!r}: give {' or '.join(_EXPORTERS)}."
            )
        return importlib.import_module(module).OTLPSpanExporter(), asked
    *others, last = _EXPORTERS
    for protocol in others:
        try:
            return importlib.import_module(_EXPORTERS[protocol]).OTLPSpanExporter(), protocol
        except ModuleNotFoundError:
            continue
    return importlib.import_module(_EXPORTERS[last]).OTLPSpanExporter(), last


def _missing(endpoint: str, error: ModuleNotFoundError) -> str:
    packages = "opentelemetry-sdk and opentelemetry-exporter-otlp"
    if not IS_INSTALLED:
        packages = f"opentelemetry-api, {packages}"
    return f"{endpoint} is set, but {error.name} is not installed. Install {packages}, or unset the variable."


async def _shut_down(provider: TracerProvider) -> None:
    """Send the remaining spans, in bounded time: a collector that does not respond must not delay exit."""
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits
            loop.call_soon_threadsafe(is_done.set)

    # Not a thread of the loop's pool: the interpreter waits for pool threads when it exits.
    threading.Thread(target=shut_down, name="traces-flush", daemon=True).start()
    try:
        await asyncio.wait_for(is_done.wait(), TRACE_FLUSH_TIMEOUT.total_seconds())
    except TimeoutError:
        log.warning("traces_lost", extra={"reason": "The collector did not take the last spans in time."})


# ---------------------------------------------------------------- serving
# Serves until a signal ends it, and logs its start.


async def serve(settings: Settings, dsn: str, lifeline: Lifeline | None = None) -> None:
    """Run until SIGTERM or SIGINT; then drain and return. A second signal ends the drain.

    The schema must be current. With a lifeline this is one of several processes: it reports to its
    supervisor that it serves, and also drains when the supervisor is gone.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()

    def stop() -> None:
        stopping.set()
        if starting is not None:
            starting.cancel()  # it may wait for the database, and there is nothing to drain yet

    if lifeline is not None:
        await wait_until_reachable(dsn, OUTAGE_PATIENCE)  # it has answered the supervisor
        lifeline.when_abandoned(partial(loop.call_soon_threadsafe, stop), within=longest_drain(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping, stop)
    try:
        async with traces_exported(os.environ), running_app(settings, dsn) as (app, address):
            starting = None
            loop.add_signal_handler(signal.SIGHUP, app.read_again)
            log.info(
                "serving" if lifeline is None else "process_serving",
                extra={
                    "address": address,
                    "http_address": app.observation.http_address,
                    "pid": os.getpid(),
                    "lease_ttl_seconds": settings.lease_ttl.total_seconds(),
                    "embedded": settings.database_url is None,
                    **doors(settings),
                },
            )
            if lifeline is None:
                warn_of_open_doors(settings)
            else:
                lifeline.send("serving")
            await stopping.wait()
            log.info("draining")
    except asyncio.CancelledError:
        if starting is None:
            raise
    log.info("stopped")


def _on_signal(number: signal.Signals, stopping: asyncio.Event, stop: Callable[[], object]) -> None:
    if stopping.is_set():
        log.warning("stopped_at_once", extra={"signal": number.name})
        os._exit(1)
    stop()
