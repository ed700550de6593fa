"""What the services of one server stand on: dispatch that records, and for tests of rows a real store."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, cast

import asyncpg

from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import Metrics
from pulse_server.database.connections import Database
from pulse_server.dispatch.claims import Claims, Reconciler, SparedWorkers
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.service import Gate
from pulse_server.jobs.rules import Job, JobFilter
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.wakeups.watchers import Watchers
from tests.dispatch.fake_claims import FakeClaims
from tests.fakes.dispatch import FakeSwitches, RecordingRoster
from tests.fakes.limits import FakeLimits
from tests.fakes.store import LEASE, Store
from tests.fakes.time_machines import PostgresTimeMachine

NEVER = timedelta(hours=1)


class Replica:
    """Dispatch of a server without rows: a test answers for its claims and switches."""

    def __init__(self, roster: RecordingRoster | None = None) -> None:
        self.roster = roster or RecordingRoster()
        self.line = self.roster.line
        self.metrics = Metrics()
        self.watchers = Watchers(self.line)
        self.publisher = Publisher(
            self.metrics, self.watchers, self.roster, self.line, None, nudge_settler=lambda: None
        )
        self.switches = FakeSwitches()
        self.limits = FakeLimits()
        self.claims = cast(Any, self._claims())
        self.gate = Gate(cast(Any, self.switches), self.roster, self.claims, interval=NEVER)
        self.reconciler = Reconciler(self.claims, self.roster, interval=NEVER)
        self.line.listen(self.gate.heard)
        self.hub = Hub(self.roster, self.claims, self.reconciler, self.line, tick=NEVER)

    def _claims(self) -> FakeClaims | Claims:
        return FakeClaims()


class RecordedJobRepo(PostgresJobRepo):
    """`calls` has the names of the called methods. `is_away` makes every method raise Unavailable."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.is_away = False
        self.calls: list[str] = []
        for name, method in inspect.getmembers(self, inspect.iscoroutinefunction):
            if not name.startswith("_"):
                setattr(self, name, partial(self._call, name, method))

    async def _call(self, name: str, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        self.calls.append(name)
        if self.is_away:
            raise Unavailable("The database did not answer. Try again.")
        return await method(*args, **keywords)


class StoredReplica(Replica):
    """The same over a real store. Limits and switches are those of the test."""

    def __init__(self, database: Database, connection: Any, roster: RecordingRoster | None = None) -> None:
        self.connection = connection
        self.repo = RecordedJobRepo(database)
        self.store = Store(self.repo, PostgresTimeMachine(connection))
        self.spared_workers = SparedWorkers(self.repo, LEASE)
        super().__init__(roster)

    def _claims(self) -> Claims:
        return Claims(self.repo, cast(Any, self.limits), self.publisher, self.spared_workers, LEASE)

    async def jobs(self) -> list[Job]:
        """All jobs, oldest first. No call of the store is recorded."""
        return (await PostgresJobRepo.list_jobs(self.repo, JobFilter(), limit=10_000))[::-1]

    async def spared(self) -> set[str]:
        """The workers that are spared."""
        rows = await self.connection.fetch("SELECT worker_id FROM pulse.spared_workers")
        return {row["worker_id"] for row in rows}

    @asynccontextmanager
    async def locked(self, *job_ids: str) -> AsyncIterator[None]:
        """Lock the rows of these jobs in another session for as long as the block lasts."""
        async with self.connection.transaction():
            await self.connection.execute(
                "SELECT FROM pulse.jobs WHERE id = ANY($1::uuid[]) FOR UPDATE", job_ids
            )
            yield


@asynccontextmanager
async def stored_replica(dsn: str, roster: RecordingRoster | None = None) -> AsyncIterator[StoredReplica]:
    """A replica on this database. The time of the database was read, as by the first tick of a watchdog."""
    database = Database(dsn)
    connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
    try:
        replica = StoredReplica(database, connection, roster)
        await replica.repo.database_now()
        replica.repo.calls.clear()
        yield replica
    finally:
        connection.terminate()
        await database.close()
