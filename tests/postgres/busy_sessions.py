"""Sessions that use the tables as servers do: they submit, claim, extend, complete and look."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.eventually import PATIENCE_SECONDS

_SUBMIT = """
INSERT INTO pulse.jobs (id, submitted_at, next_run_at, max_attempts, queued, status, topic, payload)
SELECT id, now(), now(), 5, true, 'PENDING', 'mail', '' FROM unnest($1::uuid[]) AS id
"""
_CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT job.id FROM pulse.jobs AS job
    WHERE job.topic = 'mail' AND job.queued AND job.tier IS NULL AND job.locked_by IS NULL
    ORDER BY job.priority DESC, job.submitted_at, job.id LIMIT 50 FOR UPDATE SKIP LOCKED
)
UPDATE pulse.jobs AS job
SET status = 'RUNNING', attempts = job.attempts + 1, locked_by = 'worker',
    lease_until = now() + interval '30 seconds', started_at = now()
FROM picked WHERE job.id = picked.id
RETURNING job.id
"""
_EXTEND = "UPDATE pulse.jobs SET lease_until = now() + interval '30 seconds' WHERE id = ANY($1::uuid[])"
_COMPLETE = """
UPDATE pulse.jobs
SET status = 'COMPLETED', queued = false, finished_at = now(), locked_by = NULL, lease_until = NULL
WHERE id = ANY($1::uuid[]) AND locked_by = 'worker'
"""
_LOOK = "SELECT count(*) FROM pulse.jobs WHERE status = 'RUNNING'"


class BusySessions:
    """What the sessions did, and the statements of theirs that failed."""

    def __init__(self) -> None:
        self.submitted = 0
        self.completed = 0
        self.failures: Counter[str] = Counter()
        self._is_over = False

    async def _serve(self, dsn: str) -> None:
        # As pulsed gives up on a statement: who waits for longer fails its caller.
        settings = {"statement_timeout": "4500", "plan_cache_mode": "force_generic_plan"}
        connection = await asyncpg.connect(dsn, timeout=60, server_settings=settings)
        try:
            while not self._is_over:
                try:
                    await self._round(connection)
                except asyncpg.PostgresError as error:
                    self.failures[type(error).__name__] += 1
        finally:
            await connection.close(timeout=10)

    async def _round(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        ids = [uuid.uuid4() for _ in range(50)]
        await connection.execute(_SUBMIT, ids)
        self.submitted += len(ids)
        claimed = [row["id"] for row in await connection.fetch(_CLAIM)]
        # A transaction of several statements, as operators have them.
        async with connection.transaction():
            await connection.fetchval(_LOOK)
            await connection.execute(_EXTEND, claimed)
        await connection.execute(_COMPLETE, claimed)
        self.completed += len(claimed)


@asynccontextmanager
async def sessions_at_work(dsn: str, count: int = 6) -> AsyncIterator[BusySessions]:
    """Keep the database busy for as long as the block lasts."""
    sessions = BusySessions()
    serving = [asyncio.create_task(sessions._serve(dsn)) for _ in range(count)]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sessions.completed < 1000:  # noqa: ASYNC110 - until every statement has run often
                await asyncio.sleep(0.01)
        yield sessions
    finally:
        sessions._is_over = True
        await asyncio.gather(*serving)
