"""Two million expired jobs: the cost of deleting one, and the effect on concurrent completions.

Half of the jobs are deleted at rest: one server runs for some seconds and keeps everything, then
another one deletes them. The difference in Postgres' CPU is the cost of the deletions. A second
server deletes the other half while 2,000 jobs a second pass. The completion times are compared with
the completion times before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import asyncpg

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
SECONDS = 8.0
CONCURRENCY = 100
COST = "a deleted job, CPU in Postgres"
_EXPIRED_TOPIC = "bench-expired"
_DAYS_AGO = (20, 10)
_KEEPS = {"PULSE_RETENTION_COMPLETED": "30d"}
_DELETES_HALF = {"PULSE_RETENTION_COMPLETED": "15d"}
_DELETES_ALL = {"PULSE_RETENTION_COMPLETED": "2d"}
_WARM_UP_SECONDS = 3.0
_LEFT = "SELECT count(*) FROM pulse.all_jobs WHERE topic = $1"


class Window(NamedTuple):
    """Some seconds of the load beside a second server."""

    complete: StatementTimes
    p99: float


class Outcome(NamedTuple):
    cost: float
    """The cost of a deletion, in seconds of Postgres' CPU."""
    deleted: int
    """The number of deletions at rest."""
    kept: Window
    deleting: Window


async def measure(stand: Stand) -> list[Figure]:
    runs = await repeated(stand, "retention", lambda: _run(stand))

    def figure(name: str, unit: str, values: list[float], note: str = "") -> Figure:
        return Figure("retention", name, unit, values, note)

    deleted = f"of {stand.sized(EXPIRED) // 2:,} in {SECONDS:.0f} s, at rest"
    figures = [
        figure("jobs deleted", "", [float(run.deleted) for run in runs], deleted),
        figure("a completion, nothing deleted", "ms", [run.kept.complete.mean_ms for run in runs], "mean"),
        figure("a completion, jobs deleted", "ms", [run.deleting.complete.mean_ms for run in runs], "mean"),
        figure("submit → start, nothing deleted, p99", "ms", [run.kept.p99 for run in runs]),
        figure("submit → start, jobs deleted, p99", "ms", [run.deleting.p99 for run in runs]),
    ]
    if IS_AVAILABLE and stand.postmaster is not None:
        figures.insert(0, figure(COST, "µs", [run.cost * 1e6 for run in runs]))
    return figures


async def _run(stand: Stand) -> Outcome:
    async with stand.database() as dsn:
        await fill_finished(dsn, stand.sized(EXPIRED), days_ago=_DAYS_AGO, topics=[_EXPIRED_TOPIC])
        await stand.settle(dsn)
        before = await _left(dsn)
        with stand.background.watched():
            usual = await _alone(stand, dsn, _KEEPS)
            used = await _alone(stand, dsn, _DELETES_HALF)
        deleted = before - await _left(dsn)
        if not deleted:
            raise RuntimeError("the server deleted none of the jobs whose retention is over")
        async with _load(stand, dsn) as (server, crew):
            with stand.background.watched():
                kept = await _beside(stand, dsn, _KEEPS, server, crew)
                deleting = await _beside(stand, dsn, _DELETES_ALL, server, crew)
        return Outcome((used - usual) / deleted, deleted, kept, deleting)


async def _alone(stand: Stand, dsn: str, settings: dict[str, str]) -> float:
    """Return the CPU that Postgres uses while a server starts, runs for some seconds and stops."""
    before, ends = _cpu(stand), time.monotonic() + SECONDS
    async with stand.pulsed(dsn, settings):
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
    return _cpu(stand) - before


async def _beside(stand: Stand, dsn: str, settings: dict[str, str], server: Server, crew: Crew) -> Window:
    """Let the load pass while a second server starts, runs for some seconds and stops."""
    crew.news()
    metrics = await server.metrics()
    await _alone(stand, dsn, settings)
    times = [(started - submitted) * 1000 for submitted, started in crew.news()]
    complete = statement_times(metrics, await server.metrics(), "complete_jobs")
    return Window(complete, percentile(times, 0.99))


async def _left(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval(_LEFT, _EXPIRED_TOPIC))
    finally:
        await connection.close()


@asynccontextmanager
async def _load(stand: Stand, dsn: str) -> AsyncIterator[tuple[Server, Crew]]:
    """A server that keeps everything, and jobs that pass through it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(stand.pulsed(dsn, _KEEPS, with_metrics=True))
        crew = await stack.enter_async_context(stand.crew([server.address], CONCURRENCY))
        p = await stack.enter_async_context(client(server.address))
        crew.let_loose()
        await crew.is_connected()
        await stack.enter_async_context(steady(p, RATE))
        await asyncio.sleep(_WARM_UP_SECONDS)
        yield server, crew


def _cpu(stand: Stand) -> float:
    return cpu_seconds([stand.postmaster]) if IS_AVAILABLE and stand.postmaster else 0.0
