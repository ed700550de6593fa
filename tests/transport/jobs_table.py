"""The rows in the database, for tests to compare and to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.eventually import PROMPT_SECONDS

_POLL_SECONDS = 0.01


class ConnectionOnDemand:
    """Connects at the first query: most tests of a server never read its database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def execute(self, statement: str, *args: object) -> str:
        return await (await self._connected()).execute(statement, *args)

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        return await (await self._connected()).fetch(statement, *args)

    async def fetchrow(self, statement: str, *args: object) -> asyncpg.Record | None:
        return await (await self._connected()).fetchrow(statement, *args)

    async def fetchval(self, statement: str, *args: object) -> Any:
        return await (await self._connected()).fetchval(statement, *args)

    def another(self) -> ConnectionOnDemand:
        """A further connection to the same database."""
        return ConnectionOnDemand(self._dsn)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with (await self._connected()).transaction():
            yield

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def _connected(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._dsn)
        return self._connection


class JobsTable:
    def __init__(self, connection: asyncpg.Connection[asyncpg.Record] | ConnectionOnDemand) -> None:
        self.connection = connection

    async def row(self, job_id: str) -> dict[str, Any]:
        row = await self.connection.fetchrow("SELECT * FROM pulse.all_jobs WHERE id = $1", job_id)
        assert row is not None, f"there is no job {job_id}"
        return dict(row)

    async def count(self, condition: str = "true") -> int:
        return int(await self.connection.fetchval(f"SELECT count(*) FROM pulse.all_jobs WHERE {condition}"))

    async def everything(self) -> list[str]:
        """Return every row of every table as text, to test that nothing changed."""
        tables = ("jobs", "schedules", "dispatch_control", "barred_topics")
        rows = [
            row
            for table in tables
            for row in await self.connection.fetch(
                f"SELECT entry::text FROM pulse.{table} AS entry ORDER BY 1"
            )
        ]
        return [row["entry"] for row in rows]

    async def wait_until(self, job_id: str, **columns: Any) -> dict[str, Any]:
        """Return the row once it has these values."""
        async with asyncio.timeout(PROMPT_SECONDS):
            while True:
                row = await self.row(job_id)
                if columns.items() <= row.items():
                    return row
                await asyncio.sleep(_POLL_SECONDS)

    async def wait_for_count(self, count: int, condition: str) -> None:
        """Return once exactly `count` rows meet the condition."""
        async with asyncio.timeout(PROMPT_SECONDS):
            while True:
                if await self.count(condition) == count:
                    return
                await asyncio.sleep(_POLL_SECONDS)
