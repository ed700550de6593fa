"""Two million jobs whose retention is over, deleted while 2,000 jobs a second pass: what each deletion costs.

The load passes for ten seconds with a second server that keeps everything, and for ten with one that deletes.
The CPU that Postgres used more in the second is that of the deletions. What completions pay meanwhile is the
time of their statement in both.
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
from benchmarks.figures import Figure, percentile
from benchmarks.finished import fill_finished
from benchmarks.meters import IS_AVAILABLE, cpu_seconds
from benchmarks.processes import Server
from benchmarks.repeating import repeated
from benchmarks.scenarios.load import client
from benchmarks.stand import Stand
from benchmarks.statement_times import StatementTimes, statement_times
from benchmarks.steady import steady

EXPIRED = 2_000_000
RATE = 2_000
SECONDS = 10.0
CONCURRENCY = 100
COST = "a deleted job, CPU in Postgres"
_EXPIRED_TOPIC = "bench-expired"
_DAYS_AGO = (10, 11)
_KEEPS = {"PULSE_RETENTION_COMPLETED": "30d"}
_DELETES = {"PULSE_RETENTION_COMPLETED": "2d"}
_WARM_UP_SECONDS = 3.0
_LEFT = "SELECT count(*) FROM pulse.all_jobs WHERE topic = $1"


class Window(NamedTuple):
    """Some seconds of the load beside a second server."""

    cpu: float
    complete: StatementTimes
    p99: float


class Outcome(NamedTuple):
    kept: Window
    deleting: Window
    deleted: int


async def measure(stand: Stand) -> list[Figure]:
    runs = await repeated(stand, "retention", lambda: _run(stand))
    if not any(run.deleted for run in runs):
        raise RuntimeError("the second server deleted none of the jobs whose retention is over")

    def figure(name: str, unit: str, values: list[float], note: str = "") -> Figure:
        return Figure("retention", name, unit, values, note)

    deleted = f"of {stand.sized(EXPIRED):,} in {SECONDS:.0f} s"
    figures = [
        figure("jobs deleted", "", [float(run.deleted) for run in runs], deleted),
        figure("a completion, nothing deleted", "ms", [run.kept.complete.mean_ms for run in runs], "mean"),
        figure("a completion, jobs deleted", "ms", [run.deleting.complete.mean_ms for run in runs], "mean"),
        figure("submit → start, nothing deleted, p99", "ms", [run.kept.p99 for run in runs]),
        figure("submit → start, jobs deleted, p99", "ms", [run.deleting.p99 for run in runs]),
    ]
    if IS_AVAILABLE and stand.postmaster is not None:
        costs = [(run.deleting.cpu - run.kept.cpu) * 1e6 / run.deleted for run in runs if run.deleted]
        figures.insert(0, figure(COST, "µs", costs))
    return figures


async def _run(stand: Stand) -> Outcome:
    async with _scene(stand) as (dsn, server, crew, p):
        async with steady(p, RATE):
            await asyncio.sleep(_WARM_UP_SECONDS)
            with stand.background.watched():
                kept = await _beside(stand, dsn, _KEEPS, server, crew)
                deleting = await _beside(stand, dsn, _DELETES, server, crew)
        return Outcome(kept, deleting, stand.sized(EXPIRED) - await _left(dsn))


async def _beside(stand: Stand, dsn: str, settings: dict[str, str], server: Server, crew: Crew) -> Window:
    """Let the load pass while a second server starts, runs for some seconds and stops."""
    crew.news()
    metrics, cpu, ends = await server.metrics(), _cpu(stand), time.monotonic() + SECONDS
    async with stand.pulsed(dsn, settings):
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
    used = _cpu(stand) - cpu
    times = [(started - submitted) * 1000 for submitted, started in crew.news()]
    complete = statement_times(metrics, await server.metrics(), "complete_jobs")
    return Window(used, complete, percentile(times, 0.99))


async def _left(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval(_LEFT, _EXPIRED_TOPIC))
    finally:
        await connection.close()


@asynccontextmanager
async def _scene(stand: Stand) -> AsyncIterator[tuple[str, Server, Crew, pulse.Pulse]]:
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(stand.database())
        await fill_finished(dsn, stand.sized(EXPIRED), days_ago=_DAYS_AGO, topic=_EXPIRED_TOPIC)
        await stand.settle(dsn)
        server = await stack.enter_async_context(stand.pulsed(dsn, _KEEPS, with_metrics=True))
        crew = await stack.enter_async_context(stand.crew([server.address], CONCURRENCY))
        p = await stack.enter_async_context(client(server.address))
        crew.let_loose()
        await crew.is_connected()
        yield dsn, server, crew, p


def _cpu(stand: Stand) -> float:
    return cpu_seconds([stand.postmaster]) if IS_AVAILABLE and stand.postmaster else 0.0
