"""Sessions of an application and of the owner of the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import Store
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.doors.application import application
from tests.postgres.sessions import Connection


@pytest.fixture
async def owner(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_dsn, timeout=60)
    yield connection
    connection.terminate()


@pytest.fixture
async def store(database_dsn: str, owner: Connection) -> AsyncIterator[Store]:
    database = Database(database_dsn)
    yield Store(PostgresJobRepo(database), PostgresTimeMachine(owner))
    await database.close()


@pytest.fixture
async def app(database_dsn: str) -> AsyncIterator[Connection]:
    """A session of a role with both rights."""
    async with application(database_dsn, "enqueue", "complete") as (_, connection):
        yield connection
