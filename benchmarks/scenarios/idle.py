"""An idle queue and one job every 20 ms: how long from the call of enqueue to the start of the handler."""

from __future__ import annotations

import asyncio
import time

import pulse
from benchmarks.figures import Figure, percentile
from benchmarks.scenarios.load import payload
from benchmarks.stand import Stand
from benchmarks.worker import TOPIC

JOBS = 200
GAP_SECONDS = 0.02
CONCURRENCY = 20


async def measure(stand: Stand) -> list[Figure]:
    runs = [await _run(stand) for _ in range(stand.repeats)]
    return [
        Figure("idle", f"submit → start, p{share}", "ms", [percentile(run, share / 100) for run in runs])
        for share in (50, 95, 99)
    ]


async def _run(stand: Stand) -> list[float]:
    async with stand.database() as dsn, stand.pulsed(dsn) as address:
        return await latencies(stand, address, JOBS)


async def latencies(stand: Stand, address: str, jobs: int) -> list[float]:
    """Submit that many jobs, one after another. Returns the milliseconds that each took to its handler."""
    async with stand.worker(address, CONCURRENCY) as recording, pulse.Pulse(address) as p:
        for number in range(20):  # connections, prepared statements
            await p.enqueue(TOPIC, payload(number))
        while recording.count < 20:
            await asyncio.sleep(0.005)
        begin = time.time()
        for number in range(jobs):
            await asyncio.sleep(max(0.0, begin + number * GAP_SECONDS - time.time()))
            await p.enqueue(TOPIC, payload(number))
        while recording.count < jobs + 20:
            await asyncio.sleep(0.005)
        return [(started - submitted) * 1000 for submitted, started in recording.pairs()[20:]]
