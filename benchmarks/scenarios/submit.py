"""Producers that each await one enqueue at a time."""

from __future__ import annotations

import asyncio
import time

import pulse
from benchmarks.figures import Figure
from benchmarks.scenarios.load import payload
from benchmarks.stand import Stand
from benchmarks.worker import TOPIC

JOBS = {8: 5_000, 64: 20_000}


async def measure(stand: Stand) -> list[Figure]:
    figures = []
    for producers in JOBS:
        rates = [await _run(stand, producers) for _ in range(stand.repeats)]
        figures.append(Figure("submit", f"{producers} producers", "jobs/s", rates))
    return figures


async def _run(stand: Stand, producers: int) -> float:
    async with stand.database() as dsn, stand.pulsed(dsn) as address, pulse.Pulse(address) as p:
        await p.enqueue("bench-warm-up", {})
        await stand.settle(dsn)
        numbers = iter(range(JOBS[producers]))

        async def produce() -> None:
            for number in numbers:
                await p.enqueue(TOPIC, payload(number))

        started = time.perf_counter()
        await asyncio.gather(*(produce() for _ in range(producers)))
        return JOBS[producers] / (time.perf_counter() - started)
