"""One caller that submits many jobs with enqueue_many."""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.scenarios.load import preload
from benchmarks.stand import Stand

JOBS = 20_000


async def measure(stand: Stand) -> list[Figure]:
    rates = []
    for _ in range(stand.repeats):
        async with stand.database() as dsn, stand.pulsed(dsn) as address:
            rates.append(JOBS / await preload(address, JOBS))
    return [Figure("bulk", f"{JOBS:,} by enqueue_many", "jobs/s", rates)]
