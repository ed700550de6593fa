"""Two servers whose topics have limits, and the audit of what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pulse_server.topics.store import PostgresLimitRepo
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker

TOPIC = "sync"
# Counts what runs at the end of each statement that leases jobs. A statement of a function has a snapshot of
# its own, and the pool is locked: what is counted is what runs once this commits, or more.
AUDIT = """
    CREATE TABLE public.audit (topic text, running bigint, in_a_lane bigint);
    CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.audit
        SELECT lane.topic, sum(lane.running), max(lane.running) FILTER (WHERE lane.lane <> '')
        FROM (
            SELECT job.topic, job.lane, count(*) AS running
            FROM pulse.jobs AS job
            WHERE job.locked_by IS NOT NULL
              AND job.topic IN (SELECT changed.topic FROM changed WHERE changed.locked_by IS NOT NULL)
            GROUP BY job.topic, job.lane
        ) AS lane
        GROUP BY lane.topic;
        RETURN NULL;
    END $$;
    CREATE TRIGGER audit AFTER UPDATE ON pulse.jobs REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION public.audit();
"""
RUNNING = "SELECT count(*) FROM pulse.jobs WHERE topic = $1 AND locked_by IS NOT NULL"


@dataclass
class Cluster:
    """Servers on one database, and the port to their limits."""

    servers: tuple[ServerUnderTest, ...]
    limits: PostgresLimitRepo

    async def limit_topic(self, topic: str = TOPIC, **entries: Any) -> None:
        await self.limits.limit_topic(topic, entries)
        await self.limits_changed(topic)

    async def retire(self, topic: str = TOPIC) -> None:
        await self.limits.retire(topic)
        await self.limits_changed(topic)

    async def limits_changed(self, topic: str = TOPIC) -> None:
        """All servers know of the change when this returns."""
        for server in self.servers:
            await server.app.dispatch.gate.refresh()
            server.app.dispatch.roster.wake({topic})

    async def leaves_room_for(self, slots: int, topic: str = TOPIC) -> bool:
        """Whether so many slots could have started a job at once, had the limit had room."""
        query = "SELECT wanted FROM pulse.pools WHERE name = $1"
        return bool(await self.servers[0].table.connection.fetchval(query, topic) == slots)

    async def running(self, topic: str = TOPIC) -> int:
        return int(await self.servers[0].table.connection.fetchval(RUNNING, topic))


@dataclass
class Shift:
    """Workers that complete what they are sent, until `count` jobs are done. Counts those held at once.

    Of some jobs the first attempt fails, if `has_failures`.
    """

    count: int
    has_failures: bool = False
    held: set[str] = field(default_factory=set)
    most: int = 0
    done: set[str] = field(default_factory=set)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self, workers: Collection[StreamingWorker], seconds: float) -> None:
        """Complete each job so many seconds after it has arrived."""
        tasks = [asyncio.create_task(self._work(worker, seconds)) for worker in workers]
        over = asyncio.create_task(self._is_over.wait())
        await asyncio.wait((over, *tasks), timeout=40, return_when=asyncio.FIRST_COMPLETED)
        for task in (over, *tasks):
            task.cancel()
        await asyncio.gather(over, *tasks, return_exceptions=True)
        assert len(self.done) >= self.count

    async def _work(self, worker: StreamingWorker, seconds: float) -> None:
        while True:
            job = await worker.take_one()
            self.held.add(job.job_id)
            self.most = max(self.most, len(self.held))
            await asyncio.sleep(seconds)
            self.held.discard(job.job_id)
            if self.has_failures and job.attempt == 1 and job.job_id[-1] == "0":
                await worker.fail(job, after=timedelta(milliseconds=1))
                continue
            await worker.complete(job)
            self.done.add(job.job_id)
            if len(self.done) == self.count:
                self._is_over.set()
