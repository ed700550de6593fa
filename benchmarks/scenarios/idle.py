"""An idle queue and one job every 20 ms: how long from the call of enqueue to the start of the handler."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pulse
from benchmarks import raw
from benchmarks.figures import Figure, percentiles
from benchmarks.filling import TOPIC
from benchmarks.repeating import in_turn
from benchmarks.scenarios.load import payload
from benchmarks.stand import Stand

JOBS = 200
GAP_SECONDS = 0.02
CONCURRENCY = 20
_WARM_UP = 20
_NAME = "submit → start"
P50 = f"{_NAME}, p50"


async def measure(stand: Stand) -> list[Figure]:
    runs = {_NAME: partial(_run, stand)}
    if not stand.is_brief:
        runs["raw"] = partial(raw.idle_latencies, stand)
    outcomes = await in_turn(stand, runs)
    figures = percentiles("idle", _NAME, outcomes[_NAME])
    if stand.is_brief:
        return figures
    limits = raw.idle_figures(outcomes["raw"])
    return [*(figure.beside(limit) for figure, limit in zip(figures, limits, strict=True)), *limits]


async def _run(stand: Stand) -> list[float]:
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        return await latencies(stand, server.address, stand.sized(JOBS))


async def latencies(stand: Stand, address: str, jobs: int, lanes: int = 0) -> list[float]:
    """Submit jobs one after another. Returns the milliseconds from each submit to its handler.

    With `lanes`, the jobs go into that many lanes in turn.
    """

    def lane(number: int) -> str | None:
        return f"customer-{number % lanes}" if lanes else None

    async with stand.crew([address], CONCURRENCY) as crew, pulse.Pulse(address) as p:
        crew.let_loose()
        await crew.is_connected()
        for number in range(_WARM_UP):  # connections, prepared statements
            await p.enqueue(TOPIC, payload(number), lane=lane(number))
        await crew.has_started(_WARM_UP)
        with stand.background.watched():
            begin = time.time()
            for number in range(jobs):
                await asyncio.sleep(max(0.0, begin + number * GAP_SECONDS - time.time()))
                await p.enqueue(TOPIC, payload(number), lane=lane(number))
            await crew.has_started(jobs + _WARM_UP)
        return [(started - submitted) * 1000 for submitted, started in crew.pairs() if submitted >= begin]
