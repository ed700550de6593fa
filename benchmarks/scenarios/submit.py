"""Producers that each await one enqueue at a time."""

from __future__ import annotations

from functools import partial

from benchmarks import raw
from benchmarks.figures import Figure, beside_best
from benchmarks.repeating import Runs, in_turn
from benchmarks.scenarios.load import client, produce
from benchmarks.stand import Stand

JOBS = {8: 5_000, 64: 20_000}


async def measure(stand: Stand) -> list[Figure]:
    counts = (8,) if stand.is_brief else JOBS
    runs: Runs[float] = {f"{producers} producers": partial(_run, stand, producers) for producers in counts}
    rates = await in_turn(stand, {**runs, **({} if stand.is_brief else raw.insert_runs(stand))})
    limits = raw.insert_figures("submit", rates)
    figures = [beside_best(Figure("submit", name, "jobs/s", rates[name]), limits) for name in runs]
    return [*figures, *limits]


async def _run(stand: Stand, producers: int) -> float:
    jobs = stand.sized(JOBS[producers])
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn) as server,
        client(server.address) as p,
    ):
        await stand.settle(dsn)
        with stand.background.watched():
            return jobs / await produce([p], producers, jobs)
