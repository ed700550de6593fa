"""A preloaded queue, one pulsed and one worker process with a no-op handler.

The clock starts at the first handler and stops when the database holds no unfinished job.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.figures import Figure
from benchmarks.scenarios.load import preload, wait_until_finished
from benchmarks.stand import Stand

JOBS = 20_000
CONCURRENCY = 100


async def measure(stand: Stand) -> list[Figure]:
    rates = [await _run(stand) for _ in range(stand.repeats)]
    return [Figure("drain", f"{JOBS:,} jobs, 1 worker process", "jobs/s", rates)]


async def _run(stand: Stand) -> float:
    async with stand.database() as dsn, stand.pulsed(dsn) as address:
        return await drain_rate(stand, dsn, address, JOBS)


async def drain_rate(stand: Stand, dsn: str, address: str, jobs: int) -> float:
    """Fill the queue, then run one worker on it. Returns jobs per second."""
    await preload(address, jobs)
    await stand.settle(dsn)
    async with stand.worker(address, CONCURRENCY) as recording:
        while recording.count < jobs:
            await asyncio.sleep(0.005)
        await wait_until_finished(dsn)
        finished = time.time()
        first = min(started for _, started in recording.pairs())
        return jobs / (finished - first)
