"""One, two and three pulsed on one database: a drain and a load, with workers and producers spread over them.

The number of workers stays, so that only the servers differ.
"""

from __future__ import annotations

from functools import partial

from benchmarks.draining import Drained, drain
from benchmarks.end_to_end import Ran, run_load
from benchmarks.figures import Figure, percentiles
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

JOBS = 20_000
SERVERS = (1, 2, 3)
WORKERS = 3
CONCURRENCY = 50


async def measure(stand: Stand) -> list[Figure]:
    drains = await in_turn(stand, {_pulsed(count): partial(_drain, stand, count) for count in SERVERS})
    loads = await in_turn(stand, {_pulsed(count): partial(_load, stand, count) for count in SERVERS})
    figures = [
        Figure(
            "replicas",
            f"drain of {JOBS:,}, {name}",
            "jobs/s",
            [run.rate for run in runs],
            f"{WORKERS} worker processes",
        )
        for name, runs in drains.items()
    ]
    for name, results in loads.items():
        note = f"{WORKERS} processes × {CONCURRENCY}"
        figures.append(Figure("replicas", f"e2e, {name}", "jobs/s", [run.rate for run in results], note))
        figures += percentiles("replicas", f"e2e, {name}", [run.latencies for run in results])
    return figures


async def _drain(stand: Stand, count: int) -> Drained:
    jobs = stand.sized(JOBS)
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        await stand.settle(dsn)
        async with stand.replicas(dsn, count) as servers:
            return await drain(stand, dsn, servers, [TOPIC], jobs, processes=WORKERS)


async def _load(stand: Stand, count: int) -> Ran:
    async with stand.database() as dsn, stand.replicas(dsn, count) as servers:
        return await run_load(stand, dsn, servers, processes=WORKERS, concurrency=CONCURRENCY)


def _pulsed(count: int) -> str:
    return f"{count} pulsed"
