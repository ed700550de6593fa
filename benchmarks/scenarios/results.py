"""Handlers that return a result of 100 bytes or run ten steps, beside handlers that do neither."""

from __future__ import annotations

import statistics
from functools import partial

from benchmarks.crew import WORKER
from benchmarks.draining import drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.productive_worker import STEPS, WORK
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

JOBS = 20_000
JOBS_WITH_STEPS = 2_000
PRODUCTIVE = "benchmarks.productive_worker"


async def measure(stand: Stand) -> list[Figure]:
    plain, results, steps = "no result", "a result of 100 bytes", f"{STEPS} steps in each job"
    outcomes = await in_turn(
        stand,
        {
            plain: partial(_run, stand, JOBS),
            results: partial(_run, stand, JOBS, "result"),
            steps: partial(_run, stand, JOBS_WITH_STEPS, "steps"),
        },
    )
    ratio = statistics.median(outcomes[results]) / statistics.median(outcomes[plain])
    return [
        Figure("results", plain, "jobs/s", outcomes[plain]),
        Figure("results", results, "jobs/s", outcomes[results], f"{ratio:.2f} of no result"),
        Figure("results", steps, "steps/s", [rate * STEPS for rate in outcomes[steps]]),
    ]


async def _run(stand: Stand, count: int, work: str = "") -> float:
    jobs = stand.sized(count)
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        await stand.settle(dsn)
        async with stand.pulsed(dsn) as server:
            drained = await drain(
                stand,
                dsn,
                [server],
                [TOPIC],
                jobs,
                environment={WORK: work},
                program=PRODUCTIVE if work else WORKER,
            )
        return drained.rate
