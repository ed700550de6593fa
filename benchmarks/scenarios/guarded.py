"""A drain through a server that is guarded in some way, reported as a ratio to an open one."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

JOBS = 20_000


async def compare_drains(
    stand: Stand, scenario: str, guard: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> list[Figure]:
    """Drain without the guard and with it, in turn: these settings for the server, that for its workers."""
    runs = {
        "open": partial(_run, stand, {}, {}),
        guard: partial(_run, stand, settings, environment),
    }
    rates = {name: [run.rate for run in results] for name, results in (await in_turn(stand, runs)).items()}
    ratio = statistics.median(rates[guard]) / statistics.median(rates["open"])
    return [
        Figure(scenario, f"drain of {JOBS:,}, open", "jobs/s", rates["open"]),
        Figure(scenario, f"drain of {JOBS:,}, {guard}", "jobs/s", rates[guard], f"{ratio:.2f} × open"),
    ]


async def _run(stand: Stand, settings: Mapping[str, str], environment: Mapping[str, str]) -> Drained:
    jobs = stand.sized(JOBS)
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        await stand.settle(dsn)
        async with stand.pulsed(dsn, settings) as server:
            return await drain(stand, dsn, [server], [TOPIC], jobs, environment=environment)
