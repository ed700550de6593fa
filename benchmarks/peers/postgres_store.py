"""A fresh database on the cluster that pulse is measured on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from benchmarks.stand import Stand


class PostgresStore:
    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: asyncpg.Connection | None = None

    @property
    def database(self) -> str:
        return urlsplit(self.url).path.removeprefix("/")

    async def count(self, question: str) -> int:
        # One connection for all questions: opening one takes longer than answering.
        if self._connection is None:
            self._connection = await asyncpg.connect(self.url)
        return int(await self._connection.fetchval(question))

    async def change(self, statement: str) -> None:
        """Change the stored jobs, and settle."""
        await _execute(self.url, statement)
        await self.settle()

    async def settle(self) -> None:
        await _execute(self.url, "VACUUM ANALYZE")
        await _execute(self.url, "CHECKPOINT")

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


@asynccontextmanager
async def postgres_store(stand: Stand, template: PostgresStore | None) -> AsyncIterator[PostgresStore]:
    name = f"bench_{uuid.uuid4().hex[:12]}"
    if template:
        await template.close()  # Postgres copies no database that has sessions.
    source = template.database if template else "template0"
    await _execute(stand.server_dsn, f"CREATE DATABASE {name} TEMPLATE {source}")
    store = PostgresStore(urlunsplit(urlsplit(stand.server_dsn)._replace(path=f"/{name}")))
    try:
        yield store
    finally:
        await store.close()
        await _execute(stand.server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
