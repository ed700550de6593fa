"""The store on a database that is emptied for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import asyncpg
import pytest

from pulse.topic_settings import Entries
from pulse_server.base import tuning
from pulse_server.database.connections import Database
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.steps.store import PostgresStepRepo
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.workflows.store import PostgresWorkflowRepo
from tests.fakes.store import LEASE, Store
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.glance import Glance
from tests.postgres.lifecycle_world import World
from tests.postgres.limited import Limited
from tests.postgres.planning import Planning, RecordingScheduleRepo
from tests.postgres.runs import Runs
from tests.postgres.sessions import Connection
from tests.postgres.stepped import StoredSteps
from tests.postgres.workflow_stores import StoredWorkflows
from tests.postgres_cluster import SECRET, Databases


@pytest.fixture
def patience_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a moment wins or loses as before. Past it: test_store_locks.py."""
    for name in ("LOCK_PATIENCE", "HASTE"):
        monkeypatch.setattr(f"pulse_server.database.connections.{name}", 0.8 * tuning.STATEMENT_TIMEOUT)


@pytest.fixture
def blockers_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An urgent change waits until the session that blocks it has surely been looked up."""
    monkeypatch.setattr("pulse_server.database.connections.HASTE", timedelta(seconds=2))


@pytest.fixture(scope="session")
def shared_dsn(databases: Databases, template_database: str) -> Iterator[str]:
    """The address of a database that the tests of this process take turns in."""
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def emptied_tables(databases: Databases, shared_dsn: str) -> list[str]:
    """The tables that are empty in a new database: tests start with them empty."""

    async def read() -> list[str]:
        session = await asyncpg.connect(shared_dsn, timeout=60, command_timeout=60)
        rows = await session.fetch(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'pulse'::regnamespace "
            "AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        tables = [table for (table,) in rows if not await session.fetchval(f"SELECT EXISTS (TABLE {table})")]
        await session.close()
        return tables

    return databases.run(read())


@pytest.fixture
async def connection(shared_dsn: str, emptied_tables: list[str]) -> AsyncIterator[Connection]:
    """A plain connection to the shared database: no job and no schedule yet, and nothing is paused."""
    connection = await asyncpg.connect(shared_dsn, timeout=60, command_timeout=60)
    # To delete a few rows is much quicker than to make new files, but what is deleted stays in them.
    has_grown = await connection.fetchval(
        "SELECT max(pg_relation_size(part.relid)) > 256 * 1024 "
        "FROM unnest($1::text[]) AS name CROSS JOIN pg_partition_tree(name::regclass) AS part",
        emptied_tables,
    )
    await connection.execute(
        f"TRUNCATE {', '.join(emptied_tables)}"
        if has_grown
        else ";".join(f"DELETE FROM {table}" for table in emptied_tables)
    )
    await connection.execute(
        "UPDATE pulse.dispatch_control SET paused = false, reason = '', paused_by = '', paused_at = NULL"
    )
    await connection.execute(
        "INSERT INTO pulse.cluster_secret (secret) VALUES ($1) "
        "ON CONFLICT (id) DO UPDATE SET secret = EXCLUDED.secret, previous = NULL",
        SECRET,
    )
    yield connection
    connection.terminate()


@pytest.fixture
async def second_connection(shared_dsn: str) -> AsyncIterator[Connection]:
    """Another one, to stand in the way of the first."""
    connection = await asyncpg.connect(shared_dsn, timeout=60, command_timeout=60)
    yield connection
    connection.terminate()


@pytest.fixture
async def rival(second_connection: Connection) -> Connection:
    """A connection in the middle of a transaction. What it does holds its row locks until it commits."""
    await second_connection.execute("BEGIN")
    return second_connection


@pytest.fixture
async def store(shared_dsn: str, connection: Connection) -> AsyncIterator[Store]:
    """The real store."""
    database = Database(shared_dsn)
    yield Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    await database.close()


@pytest.fixture
async def limited(shared_dsn: str, connection: Connection) -> AsyncIterator[Limited]:
    """The real store with limits."""
    database = Database(shared_dsn)
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    yield Limited(store, PostgresLimitRepo(database), connection)
    await database.close()


@pytest.fixture
async def stepped(shared_dsn: str, connection: Connection) -> AsyncIterator[StoredSteps]:
    """The real store with steps and signals."""
    database = Database(shared_dsn)
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    yield StoredSteps(store, PostgresStepRepo(database), database, connection)
    await database.close()


@pytest.fixture
async def workflows(shared_dsn: str, connection: Connection) -> AsyncIterator[StoredWorkflows]:
    """The real store with workflows."""
    database = Database(shared_dsn)
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    yield StoredWorkflows(store, PostgresWorkflowRepo(database), database, connection)
    await database.close()


@pytest.fixture
async def planning(shared_dsn: str, connection: Connection) -> AsyncIterator[Planning]:
    """The real schedules."""
    database = Database(shared_dsn)
    yield Planning(RecordingScheduleRepo(database), connection)
    await database.close()


@pytest.fixture
async def glance(shared_dsn: str, connection: Connection, store: Store) -> AsyncIterator[Glance]:
    """Topics, statistics and servers, without any yet."""
    database = Database(shared_dsn)
    glance = Glance(database, connection, store)
    await glance.clear()
    yield glance
    await database.close()


@pytest.fixture
def run_settings() -> Entries:
    """How jobs run in `runs` whose topic has no settings."""
    return {"max_crashes": 3}


@pytest.fixture
async def runs(shared_dsn: str, connection: Connection, run_settings: Entries) -> AsyncIterator[Runs]:
    """The real store with its settings."""
    database = Database(shared_dsn)
    store = Store(PostgresJobRepo(database, run_settings, LEASE), PostgresTimeMachine(connection))
    yield Runs(store, PostgresTopicSettings(database))
    await database.close()


@pytest.fixture
def world(databases: Databases, template_database: str) -> Iterator[World]:
    with databases.temporary(template_database) as dsn:
        world = World(dsn)
        yield world
        world.close()
