"""The composition root: makes every part, starts them, and stops them in order.

`Observation` has what reports on a server: readiness, health, metrics, and the port that publishes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

import grpc.aio

from pulse_server.access.service import Access
from pulse_server.base import tuning
from pulse_server.base.errors import PulseError
from pulse_server.base.exposition import Exposition
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Labels, Metrics
from pulse_server.database.audit import CountedCalls
from pulse_server.database.connections import Database
from pulse_server.database.rights import through_outages
from pulse_server.database.schema import require_usable_schema
from pulse_server.dispatch.claims import Claims, Reconciler
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher, claim_spans
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rpcs import DispatchRpcs
from pulse_server.dispatch.service import GATE_INTERVAL, Dispatch, Gate
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.doors.addresses import access_of
from pulse_server.doors.admission import Responses, interceptors
from pulse_server.doors.callers import AccessRpcs, Callers, ChangeLog
from pulse_server.doors.http import METRICS_PATH, HttpServer, ProcessPages, Readiness, behind_login
from pulse_server.doors.lines import Lines
from pulse_server.doors.quotas import SilentConnections
from pulse_server.doors.tls import Certificates
from pulse_server.failpoints import with_failpoints
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.schedules.rpcs import ScheduleRpcs
from pulse_server.schedules.service import SCHEDULE_INTERVAL, Scheduler, Schedules
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.server import Health, grpc_server, listen
from pulse_server.settings import Settings
from pulse_server.steps.rpcs import StepRpcs
from pulse_server.steps.service import Steps, StepSweep
from pulse_server.steps.store import PostgresStepRepo
from pulse_server.topics.rpcs import OwnTopics, TopicRpcs, UnservedNotes, UnservedTopics
from pulse_server.topics.rules import Grace, kept_by_status
from pulse_server.topics.service import LimitsOfTopics, LimitSweep, SettingsOfTopics
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.views.attention import Attention, DeadLetters
from pulse_server.views.explanations import Explanations
from pulse_server.views.records import Audit, Exports, Searches
from pulse_server.views.rpcs import AuditRpcs, ExportRpcs, OverviewRpcs
from pulse_server.views.servers import SERVERS_INTERVAL, Servers, name_of_process, sparing_of
from pulse_server.views.statistics import STATISTICS_INTERVAL, Minutes, Statistics, Topics
from pulse_server.views.vitals import Horizon, Space, Vitals, VitalsQueries
from pulse_server.wakeups.line import NoWakeupLine, wakeup_line
from pulse_server.wakeups.watchers import Watchers
from pulse_server.work.attempts import LeaseKeeping, Reports
from pulse_server.work.awaiting import LOOK, LOOK_WITHOUT_LINE, AwaitedJobs
from pulse_server.work.job_rpcs import AwaitingRpcs, JobRpcs, SelectionRpcs
from pulse_server.work.jobs import Jobs, Selections
from pulse_server.work.retention import ExpiredJobs, PostgresCompletedDayRepo, RetentionKeeping
from pulse_server.work.submissions import (
    PROMOTE_INTERVAL,
    ArrivalQueries,
    Arrivals,
    Promoter,
    StartLimits,
    Submissions,
)
from pulse_server.work.worker_rpcs import WorkRpcs
from pulse_server.workflows.rpcs import WorkflowRpcs
from pulse_server.workflows.service import WorkflowPublisher, Workflows, WorkflowSettler
from pulse_server.workflows.store import PostgresWorkflowRepo

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
        self.certificates = Certificates(settings.tls) if settings.tls is not None else None
        self.metrics = metrics = Metrics()
        self._database = database or Database(dsn, metrics, behind_pooler=settings.behind_pooler)
        self._line = line or wakeup_line(self._database.connector, settings.lease_ttl)
        repo = with_failpoints(PostgresJobRepo(self._database, settings.runs, settings.lease_ttl))
        self.roster = Roster(settings.lease_ttl, self._line)
        self.watchers = Watchers(self._line)
        self.awaited_jobs = AwaitedJobs(
            *(self._database, self.watchers, self._line, self.roster.held_jobs),
            look=LOOK_WITHOUT_LINE if settings.behind_pooler else LOOK,
        )
        workflow_repo = PostgresWorkflowRepo(self._database, settings.lease_ttl)
        workflow_publisher = WorkflowPublisher(metrics, self.watchers, self.roster)
        self.settler = WorkflowSettler(workflow_repo, workflow_publisher)
        publisher = Publisher(
            *(metrics, self.watchers, self.roster, self._line), claim_spans(), self.settler.loop.nudge
        )
        self.lease_keeping = LeaseKeeping(settings, self._database, repo, publisher)
        limits = with_failpoints(PostgresLimitRepo(self._database))
        self.claims = Claims(repo, limits, publisher, self.lease_keeping.spared_workers, settings.lease_ttl)
        switches = with_failpoints(PostgresDispatchRepo(self._database))
        self.gate = Gate(switches, self.roster, self.claims, interval=GATE_INTERVAL)
        self.reconciler = Reconciler(self.claims, self.roster, interval=settings.heartbeat_interval)
        self._line.listen(self.gate.heard)
        self.hub = Hub(self.roster, self.claims, self.reconciler, self._line, tick=settings.dispatch_interval)
        kept = settings.retention.entries
        topic_settings = with_failpoints(
            PostgresTopicSettings(self._database, Grace(settings.retention_grace, kept))
        )
        self.topics = SettingsOfTopics(topic_settings, limits, publisher, self.gate.refresh, settings.topics)
        self._line.listen(self.topics.heard)
        self.limit_sweep = LimitSweep(limits, self.gate, publisher, metrics)
        rules = self.topics.rules
        audit = Audit(self._database)
        self.counted_calls = CountedCalls(audit.record_calls)
        self.arrivals = Arrivals(
            ArrivalQueries(self._database),
            publisher,
            max_attempts=rules.default_attempts,
            max_result_bytes=settings.max_result_bytes,
            max_workflow_jobs=settings.max_workflow_jobs,
            counted=self.counted_calls,
        )
        self.promoter = Promoter(repo, publisher, interval=PROMOTE_INTERVAL)
        self.start_limits = StartLimits(repo, publisher)
        schedules = with_failpoints(PostgresScheduleRepo(self._database))
        self.scheduler = Scheduler(schedules, publisher, interval=SCHEDULE_INTERVAL)
        self.retention = RetentionKeeping(
            with_failpoints(ExpiredJobs(self._database)),
            PostgresCompletedDayRepo(self._database),
            publisher,
            kept_by_status(kept),
            audit_kept=settings.retention_audit,
            metrics=metrics,
        )
        minutes = Minutes(self._database)
        self.statistics = Statistics(minutes, metrics, interval=STATISTICS_INTERVAL)
        self.servers = Servers(
            *(self._database, name_of_process(), self.roster.connected),
            interval=SERVERS_INTERVAL,
            sparing=sparing_of(settings),
            address=settings.grpc_address,
        )
        jobs = Jobs(repo, publisher)
        submissions = with_failpoints(Submissions(repo, self.hub, publisher))
        step_repo = with_failpoints(PostgresStepRepo(self._database))
        steps = Steps(step_repo, repo, publisher, settings.steps)
        self.step_sweep = StepSweep(step_repo)
        workflows = Workflows(
            *(workflow_repo, repo, jobs, publisher, workflow_publisher, self.settler),
            settings.max_workflow_jobs,
        )
        reports = with_failpoints(Reports(repo, publisher, steps.suspend))
        self.access = access_of(settings, metrics)
        self.observation = Observation(
            settings, self._database, self.gate, self.roster, self.servers, metrics
        )
        self._lines = Lines(metrics)
        self.connections, responses = SilentConnections(), Responses()
        callers = Callers(self.access.authenticator if self.access is not None else None)
        change_log = ChangeLog(callers, self.counted_calls, metrics)
        self.unserved = UnservedTopics(self.roster.demand, self.servers.workers_by_topic)
        notes = UnservedNotes(self.unserved, callers)
        self._server = grpc_server(
            make_server,
            JobRpcs(submissions, jobs, rules, change_log, self.arrivals.loop.nudge, notes),
            SelectionRpcs(Selections(repo, jobs)),
            ExportRpcs(Exports(self._database), Searches(self._database), responses),
            AwaitingRpcs(self.awaited_jobs, responses, self._lines),
            WorkRpcs(
                *(self.hub, self.claims, self.gate),
                *(self.lease_keeping.leases(rules), reports, rules),
                lease_ttl=settings.lease_ttl,
                heartbeat=settings.heartbeat_interval,
                max_result_bytes=settings.max_result_bytes,
                steps=settings.steps,
            ),
            ScheduleRpcs(Schedules(schedules, publisher), jobs, rules, callers, notes),
            DispatchRpcs(Dispatch(switches, self.gate, publisher, self.servers.connections_of), callers),
            TopicRpcs(
                *(self.topics, LimitsOfTopics(limits, self.topics, publisher), callers),
                OwnTopics(self.roster, self.servers.topics_of),
            ),
            StepRpcs(steps, callers),
            WorkflowRpcs(workflows, rules.max_attempts, notes, self._lines),
            OverviewRpcs(
                self.observation.attention(limits, schedules),
                *(minutes, DeadLetters(self._database), self.servers, self.watchers, self.gate, responses),
                Explanations(
                    *(self._database, self.servers, self.roster, settings),
                    limits_pending=self.topics.pending_of,
                ),
            ),
            AuditRpcs(audit),
            AccessRpcs(callers),
            self._lines,
            change_log=change_log,
            metrics=metrics,
            clock=self.servers.now,
            interceptors=interceptors(self.access, metrics, responses, self.connections, self.counted_calls),
            shares_port=settings.shares_port,
            health=self.observation.health,
            reflection=settings.reflection,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Accept calls. Returns the address, with the port that was really taken."""
        await self.observation.open(self.access, self.certificates)
        # Primed before the first worker can ask: a server that cannot read the switch must not start.
        await through_outages(self._database.connector.dsn, self._prime)
        port = listen(self._server, self._settings.grpc_address, self.certificates)
        self.connections.port = port
        await self._server.start()
        await self.observation.serve()
        runs = [self.hub.run()]
        for place, loop in enumerate(self._loops()):
            loop.report_to(self.metrics)
            runs.append(loop.run(after=place * LOOP_STAGGER))
        self._tasks = [asyncio.create_task(run) for run in (*runs, self._line.run())]
        return f"{self._settings.grpc_address.rpartition(':')[0]}:{port}"

    async def _prime(self) -> None:
        await self.gate.refresh()
        await self.topics.prime()
        await self.retention.prepare()

    async def stop(self) -> None:
        """Stop claiming, release undelivered jobs, let calls under way finish, then close."""
        self.observation.drain()
        self.watchers.end_watching()
        await self.hub.drain(tuning.STREAM_GOODBYE)
        self._lines.end()
        await self._server.stop(self._settings.drain_timeout.total_seconds())
        # A submit that was under way may have handed a job over to a worker that is gone by now.
        await self.claims.finish_releases(tuning.STREAM_GOODBYE)
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
                await self.servers.leave()
                await self.statistics.record_news()
                await self.counted_calls.flush()
        await self.observation.close()
        if self.access is not None:
            self.access.close()
        await self._database.close()

    def read_again(self) -> None:
        """Reload the file of users and the certificate, which may change while the server runs."""
        if self.certificates is not None:
            self.certificates.read_again()
        if self.access is not None:
            self.access.read_again()

    def _loops(self) -> tuple[Loop, ...]:
        return (
            *self.lease_keeping.loops,
            self.arrivals.loop,
            self.promoter.loop,
            self.settler.loop,
            self.start_limits.loop,
            self.scheduler.loop,
            self.gate.loop,
            self.topics.loop,
            self.limit_sweep.loop,
            *self.retention.loops,
            self.step_sweep.loop,
            *self.reconciler.loops,
            self.statistics.loop,
            self.counted_calls.loop,
            self.servers.loop,
            self.watchers.loop,
            self.awaited_jobs.loop,
            self.connections.loop,
            *self.observation.loops,
            *(self.access.loops if self.access is not None else ()),
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
