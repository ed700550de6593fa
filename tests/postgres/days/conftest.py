"""A database of each test alone: partitions come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.work import retention
from tests.postgres.sessions import Connection


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    database = Database(database_dsn)
    yield database
    await database.close()


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_dsn, timeout=60, command_timeout=60)
    yield connection
    connection.terminate()


@pytest.fixture(autouse=True)
def _few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DROP_TRIES", 2)
