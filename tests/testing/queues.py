"""A queue for one test, of a kit or of a real server: the same facts have to hold for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

import asyncpg

import pulse
from pulse.testing import Kit
from pulse.testing.pulsed import ToPulsed
from pulse.wire.redirection import redirected
from pulse.worker.intake import declare_topics
from tests.eventually import PROMPT_SECONDS
from tests.transport.pulse_server_under_test import server_under_test

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
_QUIET_SECONDS = 0.02
_TABLES = "('jobs', 'job_steps', 'unique_periods')"


class Queue(Protocol):
    p: pulse.Pulse
    """The client of the application. Its address leads nowhere."""

    async def drain(self) -> None:
        """Run what is due, and what that enqueues."""

    async def advance(self, duration: timedelta) -> None:
        """Let so much time pass for the queue."""


class KitQueue:
    def __init__(self, kit: Kit) -> None:
        self.p = pulse.Pulse("localhost:1")
        self.kit = kit
        kit.use(self.p)

    async def drain(self) -> None:
        await self.kit.adrain(errors="keep")

    async def advance(self, duration: timedelta) -> None:
        await self.kit.aadvance(duration)


class ServerQueue:
    """A real server. Time passes by a change of all times in its tables."""

    def __init__(self, database: asyncpg.Connection[asyncpg.Record]) -> None:
        self.p = pulse.Pulse("localhost:1", concurrency=1)
        self._database = database

    async def drain(self) -> None:
        # A worker declares its policies beside its first jobs. The first failure may come before that.
        registry = self.p._registry
        handlers = [handler for topic in registry if (handler := registry.get(topic)) is not None]
        await declare_topics(self.p._caller.session().connection, "declarer", handlers)
        worker = asyncio.create_task(self.p.run(handle_signals=False))
        try:
            async with asyncio.timeout(PROMPT_SECONDS):
                while await self._is_busy():
                    assert not worker.done(), worker.exception()
                    await asyncio.sleep(_QUIET_SECONDS)
        finally:
            worker.cancel()
            await asyncio.wait({worker})

    async def _is_busy(self) -> bool:
        served = list(self.p.handled_topics)
        query = """
            SELECT count(*) FROM pulse.jobs
            WHERE finished_at IS NULL AND topic = ANY($1)
              AND (locked_by IS NOT NULL OR (next_run_at <= clock_timestamp() AND start_by IS NULL)
                   OR start_by <= clock_timestamp())
        """
        return bool(await self._database.fetchval(query, served))

    async def advance(self, duration: timedelta) -> None:
        columns = await self._database.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'pulse' "
            f"AND data_type = 'timestamp with time zone' AND table_name IN {_TABLES}"
        )
        async with self._database.transaction():
            for table, column in columns:
                await self._database.execute(
                    f"UPDATE pulse.{table} SET {column} = {column} - $1::interval WHERE isfinite({column})",
                    duration,
                )


@asynccontextmanager
async def server_queue(dsn: str) -> AsyncIterator[ServerQueue]:
    """Run a server on the database while the block runs, and send all clients there."""
    async with server_under_test(dsn) as server:
        database = await asyncpg.connect(dsn)
        try:
            with redirected(ToPulsed(server.address)):
                queue = ServerQueue(database)
                yield queue
                await queue.p.close()
        finally:
            await database.close()


async def run_once(queue: Queue, job: Any, *args: Any, **kwargs: Any) -> pulse.JobInfo:
    """Enqueue the job, run what is due, and return the job."""
    handle = await job.enqueue(*args, **kwargs)
    await queue.drain()
    return await queue.p.get_job(handle.id)
