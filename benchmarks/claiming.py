"""Claims and completions as a server sends them, without a server: for figures of one statement."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from pulse_server.database.connections import Database
from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import Claim, ClaimedJob, Level
from pulse_server.jobs.store import PostgresJobRepo

_WORKER = "bench-1-abcdef"
_LEASE = timedelta(hours=1)


@asynccontextmanager
async def job_repo(dsn: str) -> AsyncIterator[PostgresJobRepo]:
    database = Database(dsn)
    try:
        yield PostgresJobRepo(database)
    finally:
        await database.close()


async def claim(
    repo: PostgresJobRepo, topics: Collection[str], jobs: int, levels: Sequence[Level] | None = None
) -> Sequence[ClaimedJob]:
    """Claim `jobs` jobs of the topics for one worker. `levels`: where a server knows them to be."""
    slots = Slots(workers=[_WORKER], confirms=[True], order=[0] * jobs)
    return await repo.claim_batch(topics, slots, _LEASE, levels)


async def complete(repo: PostgresJobRepo, claimed: Sequence[ClaimedJob]) -> None:
    await repo.complete_jobs([Claim(job.id, job.worker_id, job.attempt) for job in claimed])
