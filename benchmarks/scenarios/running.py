"""Claims of 20 jobs of a topic of which 10,000 run already, submitted before them.

Each round stores 20 jobs, claims them and completes them, one statement after the other, as a server sends
them. The figure is the median of the claims.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from datetime import timedelta

from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import repeated
from benchmarks.stand import Stand
from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim, ClaimedJob, NewJob
from pulse_server.postgres.database import Database
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.repos.jobs import Slots

RUNNING = 10_000
BATCH = 20
ROUNDS = 200
NAME = f"a claim of {BATCH} behind {RUNNING:,} running jobs"
_WARM_UP_ROUNDS = 30
_CLAIMED_AT_ONCE = 1_000
_LEASE = timedelta(hours=1)
_PAYLOAD = b'{"i": 12345, "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}'


async def measure(stand: Stand) -> list[Figure]:
    medians = await repeated(stand, "running", lambda: _run(stand))
    return [Figure("running", NAME, "ms", medians, f"median of {stand.sized(ROUNDS)}")]


async def _run(stand: Stand) -> float:
    async with stand.database() as dsn:
        jobs = stand.sized(RUNNING)
        await fill(dsn, jobs)
        await stand.settle(dsn)
        database = Database(dsn)
        try:
            repo = PostgresJobRepo(database)
            while jobs > 0:
                jobs -= len(await _claim(repo, min(jobs, _CLAIMED_AT_ONCE)))
            for _ in range(_WARM_UP_ROUNDS):
                await _round(repo)
            with stand.background.watched():
                return statistics.median([await _round(repo) for _ in range(stand.sized(ROUNDS))])
        finally:
            await database.close()


async def _round(repo: PostgresJobRepo) -> float:
    """Return the milliseconds that the claim took."""
    await repo.insert_jobs([NewJob(new_id(), TOPIC, _PAYLOAD, 0, 5) for _ in range(BATCH)])
    began = time.perf_counter()
    claimed = await _claim(repo, BATCH)
    took = (time.perf_counter() - began) * 1000
    assert len(claimed) == BATCH
    await repo.complete_jobs([Claim(job.id, job.worker_id, job.attempt) for job in claimed])
    return took


async def _claim(repo: PostgresJobRepo, jobs: int) -> Sequence[ClaimedJob]:
    slots = Slots(workers=["bench-1-abcdef"], confirms=[True], order=[0] * jobs)
    return await repo.claim_batch([TOPIC], slots, _LEASE)
