"""The composition root: wires adapters to services to transport, serves, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pulse_server import tuning
from pulse_server.loops import Loop
from pulse_server.postgres.database import Database, wait_until_reachable
from pulse_server.postgres.dispatch import PostgresDispatchRepo
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.postgres.migrations.runner import apply_migrations, require_current_schema
from pulse_server.postgres.schedules import PostgresScheduleRepo
from pulse_server.postgres.wakeups import PostgresWakeupLine
from pulse_server.service.claims import Claims
from pulse_server.service.gate import Gate, PauseControl
from pulse_server.service.jobs import Jobs
from pulse_server.service.promoter import Promoter
from pulse_server.service.reports import Reports
from pulse_server.service.scheduler import Scheduler
from pulse_server.service.schedules import Schedules
from pulse_server.service.signals import Signals
from pulse_server.service.submissions import Submissions
from pulse_server.service.watchdog import Watchdog
from pulse_server.settings import Settings
from pulse_server.transport.grpc.consumer import Consumer
from pulse_server.transport.grpc.hub import Hub
from pulse_server.transport.grpc.operator import Operator
from pulse_server.transport.grpc.planner import Planner
from pulse_server.transport.grpc.producer import Producer
from pulse_server.transport.grpc.server import grpc_server, listen

log = logging.getLogger(__name__)


class App:
    """One pulsed on one database. Nothing in it is needed for correctness: it may die at any instruction."""

    def __init__(self, settings: Settings, dsn: str) -> None:
        self._settings = settings
        self._database = Database(dsn)
        self._line = PostgresWakeupLine(dsn)
        repo = PostgresJobRepo(self._database)
        signals = Signals(self._line)
        claims = Claims(repo, signals, settings.lease_ttl)
        switches = PostgresDispatchRepo(self._database)
        self.gate = Gate(switches, interval=tuning.GATE_INTERVAL)
        self.hub = Hub(claims, self.gate, tick=settings.dispatch_interval, lease_ttl=settings.lease_ttl)
        self.gate.on_change(lambda: self.hub.wake(None))
        signals.attach(self.hub)
        signals.on_gate_changed_elsewhere(self.gate.loop.nudge)
        self.watchdog = Watchdog(
            repo, signals, interval=settings.watchdog_interval, lease_ttl=settings.lease_ttl
        )
        self.promoter = Promoter(repo, signals, interval=tuning.PROMOTE_INTERVAL)
        schedules = PostgresScheduleRepo(self._database)
        self.scheduler = Scheduler(schedules, signals, interval=tuning.SCHEDULE_INTERVAL)
        self._reconciler = Loop("reconciler", self.hub.reconcile, settings.heartbeat_interval)
        self._server = grpc_server(
            Producer(Submissions(repo, signals)),
            Consumer(
                self.hub,
                claims,
                Reports(repo),
                lease_ttl=settings.lease_ttl,
                heartbeat=settings.heartbeat_interval,
            ),
            Operator(Jobs(repo, signals), PauseControl(switches, self.gate, signals)),
            Planner(Schedules(schedules, signals)),
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Accept calls. Returns the address, with the port that was really taken."""
        await self._database.open()
        # Primed before the first worker can ask: a server that cannot read the switch must not start.
        await self.gate.refresh()
        host = self._settings.grpc_address.rpartition(":")[0]
        port = listen(self._server, self._settings.grpc_address)
        await self._server.start()
        runs = [self.hub.run, *(loop.run for loop in self._loops()), self._line.run]
        self._tasks = [asyncio.create_task(run()) for run in runs]
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Stop claiming, hand back what was not delivered, let calls under way finish, then let go."""
        await self.hub.drain(tuning.STREAM_GOODBYE)
        await self._server.stop(self._settings.drain_timeout.total_seconds())
        for loop in self._loops():
            loop.stop()
        *loops, line = self._tasks
        line.cancel()
        await asyncio.wait(loops, timeout=tuning.STATEMENT_TIMEOUT.total_seconds())
        for task in loops:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._database.close()

    def _loops(self) -> tuple[Loop, ...]:
        return (
            self.watchdog.loop,
            self.promoter.loop,
            self.scheduler.loop,
            self.gate.loop,
            self._reconciler,
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


async def serve(settings: Settings, dsn: str, *, migrate: bool) -> None:
    """Run until SIGTERM or SIGINT; then drain and return. A second signal ends the drain."""
    await wait_until_reachable(dsn, tuning.STARTUP_PATIENCE)
    if migrate:
        await apply_migrations(dsn)
    else:
        await require_current_schema(dsn)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping)
    async with running_app(settings, dsn) as (_, address):
        log.info(
            "serving",
            extra={
                "address": address,
                "pid": os.getpid(),
                "lease_ttl_seconds": settings.lease_ttl.total_seconds(),
                "embedded": settings.database_url is None,
            },
        )
        await stopping.wait()
        log.info("draining")
    log.info("stopped")


def _on_signal(number: signal.Signals, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        log.warning("stopped_at_once", extra={"signal": number.name})
        os._exit(1)
    stopping.set()
