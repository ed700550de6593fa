"""Topics with limits: the limits that are measured, jobs in lanes, and drains by SQL alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pulse
from benchmarks.draining import Drained
from benchmarks.filling import TOPIC, fill
from benchmarks.meters import IS_AVAILABLE, cpu_seconds
from benchmarks.stand import Stand
from pulse.topic_settings import Entries
from pulse_server.database.connections import Database
from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import Claim, ClaimedJob
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo

CLAIMED = 500
_LEASE = timedelta(hours=1)
JOBS = 40_000


@dataclass(frozen=True, slots=True)
class Limited:
    """A topic with limits, lanes and jobs."""

    limits: Entries
    lanes: int = 0
    jobs: int = JOBS


async def limit(address: str, limits: Entries) -> None:
    """Set the limits as an operator does; they are in force at once."""
    async with pulse.Pulse(address) as p:
        await p.set_topic(TOPIC, **limits)


class Sessions:
    """One caller that claims and completes, without a server."""

    def __init__(self, database: Database) -> None:
        self.limits = PostgresLimitRepo(database)
        self._jobs = PostgresJobRepo(database)

    async def claim(self, limited: Limited | None, jobs: int = CLAIMED) -> list[ClaimedJob]:
        slots = Slots(
            workers=["bench-1", "bench-2"], confirms=[True, True], order=[i // 50 % 2 for i in range(jobs)]
        )
        if limited is None:
            return list(await self._jobs.claim_batch([TOPIC], slots, _LEASE))
        return list((await self.limits.claim_limited([TOPIC], slots, _LEASE)).jobs)

    async def complete(self, jobs: list[ClaimedJob]) -> None:
        completed = await self._jobs.complete_jobs(
            [Claim(job.id, job.worker_id, job.attempt) for job in jobs]
        )
        assert sum(len(topic.places) for topic in completed.by_topic) == len(jobs)


@asynccontextmanager
async def filled(stand: Stand, limited: Limited | None, jobs: int) -> AsyncIterator[Sessions]:
    """A database with that many jobs under the limits, and a caller that is connected."""
    async with stand.database() as dsn:
        database = Database(dsn)
        try:
            sessions = Sessions(database)
            if limited is not None:
                await sessions.limits.limit_topic(TOPIC, limited.limits)
            await fill(dsn, jobs, lanes=limited.lanes if limited else 0)
            await stand.settle(dsn)
            yield sessions
        finally:
            await database.close()


async def drain_by_sql(stand: Stand, limited: Limited | None) -> Drained:
    """Claim and complete in turn until nothing is left: one statement at a time."""
    jobs = max(stand.sized(limited.jobs if limited else JOBS), 2 * CLAIMED)
    async with filled(stand, limited, jobs) as sessions:
        done = 0
        with stand.background.watched():
            before, began = _postgres_cpu(stand), time.perf_counter()
            while done < jobs:
                claimed = await sessions.claim(limited)
                await sessions.complete(claimed)
                done += len(claimed)
            seconds, used = time.perf_counter() - began, _postgres_cpu(stand) - before
    return Drained(jobs / seconds, {"Postgres": used * 1e6 / jobs} if used else {})


def _postgres_cpu(stand: Stand) -> float:
    return cpu_seconds([stand.postmaster]) if IS_AVAILABLE and stand.postmaster else 0.0
