"""Another session holds a transaction open while workers empty a queue that producers keep full.

Producers keep 2,000 jobs waiting for a worker with 32 slots: as many jobs pass as the server can move. The
rate while the transaction is held is compared with the rate before it. Dead rows stay for that time, and a
claim must not walk them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import asyncpg

import pulse
from benchmarks.crew import Crew
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC
from benchmarks.processes import Server
from benchmarks.repeating import repeated
from benchmarks.scenarios.load import client, payload
from benchmarks.stand import Stand
from benchmarks.statement_times import claim_times

DEPTH = 2_000
CONCURRENCY = 32
CLEAN_SECONDS = 20.0
HELD_SECONDS = 80.0
LAST_SECONDS = 10.0
SHARE = f"held for {HELD_SECONDS:.0f} s, of clean"
_WARM_UP_SECONDS = 5.0
_BATCH = 500
_CALLS = 4
_FULL_SECONDS = 0.002


class Outcome(NamedTuple):
    clean: float
    held: float
    last: float
    """The rate over the last seconds that the transaction was held."""
    clean_claim: float
    last_claim: float


async def measure(stand: Stand) -> list[Figure]:
    runs = await repeated(stand, "backlog", lambda: _run(stand))

    def figure(name: str, unit: str, values: list[float]) -> Figure:
        return Figure("backlog", name, unit, values)

    held, last = f"held for {HELD_SECONDS:.0f} s", f"last {LAST_SECONDS:.0f} s of it"
    return [
        figure("clean", "jobs/s", [run.clean for run in runs]),
        figure(held, "jobs/s", [run.held for run in runs]),
        figure(f"{held}, {last}", "jobs/s", [run.last for run in runs]),
        figure(SHARE, "× clean", [run.held / run.clean for run in runs]),
        figure("clean, a claim", "ms", [run.clean_claim for run in runs]),
        figure(f"{held}, {last}, a claim", "ms", [run.last_claim for run in runs]),
    ]


async def _run(stand: Stand) -> Outcome:
    pace = 0.05 if stand.is_trial else 1.0
    async with _scene(stand) as (dsn, server, crew):
        await asyncio.sleep(_WARM_UP_SECONDS * pace)
        with stand.background.watched():
            clean, clean_claim = await _pass(server, crew, CLEAN_SECONDS * pace)
            async with _transaction_held(dsn):
                began, count = time.monotonic(), crew.count
                await asyncio.sleep((HELD_SECONDS - LAST_SECONDS) * pace)
                last, last_claim = await _pass(server, crew, LAST_SECONDS * pace)
                held = (crew.count - count) / (time.monotonic() - began)
    return Outcome(clean, held, last, clean_claim, last_claim)


async def _pass(server: Server, crew: Crew, seconds: float) -> tuple[float, float]:
    """Return the jobs per second and the mean of a claim in milliseconds."""
    before, began, count = await server.metrics(), time.monotonic(), crew.count
    await asyncio.sleep(seconds)
    rate = (crew.count - count) / (time.monotonic() - began)
    return rate, claim_times(before, await server.metrics()).mean_ms


@asynccontextmanager
async def _transaction_held(dsn: str) -> AsyncIterator[None]:
    """Another session sees the database as it is now for as long as the block lasts."""
    holder = await asyncpg.connect(dsn)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetchval("SELECT count(*) FROM pulse.jobs")
        yield
    finally:
        holder.terminate()


@asynccontextmanager
async def _scene(stand: Stand) -> AsyncIterator[tuple[str, Server, Crew]]:
    """A server whose queue is kept full, and workers that empty it."""
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(stand.database())
        server = await stack.enter_async_context(stand.pulsed(dsn, with_metrics=True))
        crew = await stack.enter_async_context(stand.crew([server.address], CONCURRENCY))
        p = await stack.enter_async_context(client(server.address))
        crew.let_loose()
        await crew.is_connected()
        await stack.enter_async_context(_kept_full(p, crew))
        yield dsn, server, crew


@asynccontextmanager
async def _kept_full(p: pulse.Pulse, crew: Crew) -> AsyncIterator[None]:
    """Submit for the length of the block, whenever fewer than DEPTH jobs wait."""
    submitted = 0

    async def produce() -> None:
        nonlocal submitted
        while True:
            if submitted - crew.count > DEPTH - _BATCH:
                await asyncio.sleep(_FULL_SECONDS)
                continue
            batch = [payload(submitted + number) for number in range(_BATCH)]
            submitted += _BATCH
            await p.enqueue_many(TOPIC, batch)

    async with asyncio.TaskGroup() as calls:
        producers = [calls.create_task(produce()) for _ in range(_CALLS)]
        try:
            yield
        finally:
            for producer in producers:
                producer.cancel()
