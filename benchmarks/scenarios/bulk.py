"""One caller that submits many jobs with enqueue_many."""

from __future__ import annotations

from benchmarks import raw
from benchmarks.figures import Figure, beside_best
from benchmarks.repeating import in_turn
from benchmarks.scenarios.load import payload, preload
from benchmarks.stand import Stand

JOBS = 20_000
NAME = f"{JOBS:,} in bulk"


async def measure(stand: Stand) -> list[Figure]:
    async def run() -> float:
        jobs = stand.sized(JOBS)
        async with stand.database() as dsn, stand.pulsed(dsn) as server:
            payloads = [payload(number) for number in range(jobs)]
            await stand.settle(dsn)
            with stand.background.watched():
                return jobs / await preload(server.address, payloads)

    rates = await in_turn(stand, {NAME: run, **({} if stand.is_brief else raw.insert_runs(stand))})
    limits = raw.insert_figures("bulk", rates)
    return [beside_best(Figure("bulk", NAME, "jobs/s", rates[NAME], "enqueue_many"), limits), *limits]
