"""Servers of 0.1.0 from before migration 0011: they send the statements of their time."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg

from pulse_server.postgres.database import HOT_PLANS
from pulse_server.postgres.migrations.runner import apply_migrations
from pulse_server.postgres.migrations.schema import known_migrations
from tests.eventually import PATIENCE_SECONDS
from tests.postgres.sessions import Connection

_FILE = Path(__file__).with_name("statements_before_0011.sql")
STATEMENTS = {
    part.split("\n", 1)[0].strip(): part.split("\n", 1)[1].strip().rstrip(";")
    for part in _FILE.read_text().split("-- name: ")[1:]
}
LEASE = timedelta(minutes=10)
WORKER = "old"


async def make_old_schema(dsn: str) -> None:
    await apply_migrations(dsn, [migration for migration in known_migrations() if migration.version < 11])


async def old_session(dsn: str) -> Connection:
    return await asyncpg.connect(dsn, timeout=60, command_timeout=60, server_settings=HOT_PLANS)


async def old_submit(connection: Connection, count: int, topic: str = "email") -> list[str]:
    ids = [uuid.uuid4() for _ in range(count)]
    columns = [ids, [topic] * count, [b"{}"] * count, [0] * count, [5] * count, [], [], [], [], []]
    await connection.fetch(STATEMENTS["insert_jobs"], *columns)
    return [str(job_id) for job_id in ids]


async def old_claim(connection: Connection, count: int, topic: str = "email") -> list[str]:
    slots = (count, [1] * count, [WORKER], [False], LEASE, 2**23)
    return [str(row["id"]) for row in await connection.fetch(STATEMENTS["claim_batch"], topic, *slots)]


async def old_complete(connection: Connection, ids: list[str]) -> list[str]:
    ids = sorted(ids)
    rows = await connection.fetch(STATEMENTS["complete_jobs"], ids, [WORKER] * len(ids), [1] * len(ids))
    return [ids[row["place"] - 1] for row in rows]


class OldServers:
    """What some of these servers did until they were stopped, and what they were refused."""

    def __init__(self) -> None:
        self.submitted: set[str] = set()
        self.claimed: list[str] = []
        self.completed: list[str] = []
        self.failures: Counter[str] = Counter()
        self._is_over = False

    async def serve(self, dsn: str) -> None:
        connection = await old_session(dsn)
        kept: list[str] = []  # what its workers have finished, and no server has taken yet
        try:
            while not self._is_over:
                try:
                    if kept:
                        self.completed += await old_complete(connection, kept)
                        kept = []
                    self.submitted.update(await old_submit(connection, 50))
                    kept = await old_claim(connection, 50)
                    self.claimed += kept
                except asyncpg.PostgresError as error:
                    self.failures[type(error).__name__] += 1
        finally:
            connection.terminate()

    def stop(self) -> None:
        self._is_over = True


@asynccontextmanager
async def old_servers_at_work(dsn: str, count: int = 4) -> AsyncIterator[OldServers]:
    servers = OldServers()
    serving = [asyncio.create_task(servers.serve(dsn)) for _ in range(count)]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(servers.completed) < 1000:  # noqa: ASYNC110 - until every statement has run often
                await asyncio.sleep(0.01)
        yield servers
    finally:
        servers.stop()
        await asyncio.gather(*serving)
