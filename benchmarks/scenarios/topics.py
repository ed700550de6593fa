"""Many topics: one worker with a thousand topics, and a thousand workers with a topic set each.

The drains take 20,000 jobs from queues of 200,000, in one topic and spread over a thousand. In the
crowd every worker wants a common topic and a private topic. Jobs of the common topic are submitted
at 300 a second.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from subprocess import PIPE

import pulse
from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import fill, topics
from benchmarks.repeating import Runs, in_turn, repeated
from benchmarks.stand import Stand

QUEUED = 200_000
DRAINED = 20_000
TOPICS = 1_000
WORKERS = 1_000
RATE = 300
SECONDS = 10.0
SHARED = "shared"
_PATIENCE_SECONDS = 120


async def measure(stand: Stand) -> list[Figure]:
    runs: Runs[Drained] = {
        f"drain of {DRAINED:,} of {QUEUED:,} jobs, {count:,} topic{'s' * (count > 1)}": partial(
            _drain, stand, count
        )
        for count in (1, TOPICS)
    }
    drained = await in_turn(stand, runs)
    one, many = [
        Figure("topics", name, "jobs/s", [run.rate for run in outcomes]) for name, outcomes in drained.items()
    ]
    crowds = await repeated(stand, "topics", lambda: _crowd(stand))
    about = f"{stand.sized(WORKERS):,} workers with as many topic sets, {RATE} submits/s"
    return [
        one,
        many.beside(one),
        Figure("topics", f"{about}, p50", "ms", [statistics.median(times) for times in crowds]),
        Figure("topics", f"{about}, p95", "ms", [sorted(times)[len(times) * 19 // 20] for times in crowds]),
    ]


async def _drain(stand: Stand, count: int) -> Drained:
    names = topics(count)
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        await fill(dsn, stand.sized(QUEUED), into=names)
        return await drain(stand, dsn, [server], names, stand.sized(DRAINED), is_all=False)


async def _crowd(stand: Stand) -> list[float]:
    """Return the milliseconds of each submit."""
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn) as server,
        _workers(stand, server.address),
        pulse.Pulse(server.address) as producer,
    ):
        began = time.perf_counter()
        submits = []
        for number in range(int(RATE * SECONDS)):
            submits.append(asyncio.create_task(_submit(producer)))
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        return [taken * 1000 for taken in await asyncio.gather(*submits)]


async def _submit(producer: pulse.Pulse) -> float:
    began = time.perf_counter()
    await producer.enqueue(SHARED, {})
    return time.perf_counter() - began


@asynccontextmanager
async def _workers(stand: Stand, address: str) -> AsyncIterator[None]:
    """The workers, in a separate process: a thousand streams here would disturb the measurement."""
    program = [stand.python, "-m", "benchmarks.set_workers", address, str(stand.sized(WORKERS)), SHARED]
    process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            assert await process.stdout.readline(), "the workers ended before they were connected"
        yield
    finally:
        process.stdin.close()
        await process.wait()
