"""Another session holds a transaction open while a thousand jobs a second pass: dead rows stay.

Workers are connected to one pulsed. Nine tenths of the jobs are submitted to another one, so that they are
stored, found and claimed. The rest is submitted to the workers' server and handed over. Rows of a
table show statement times, waiting times and the size of the table, and how fast 20,000 waiting
jobs were drained: before the transaction, during it, after its end and after a vacuum.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import asyncpg

import pulse
from benchmarks.bloat import Bloat, look
from benchmarks.counters import count_of
from benchmarks.crew import Crew
from benchmarks.figures import Figure, percentile
from benchmarks.filling import TOPIC
from benchmarks.processes import Server, until
from benchmarks.scenarios.load import client, payload
from benchmarks.series import Column, as_figures, as_table
from benchmarks.stand import Stand
from benchmarks.statement_times import StatementTimes, statement_times
from benchmarks.steady import steady

RATE = 1_000
HANDED_OVER = 100
"""Of RATE, this many a second are submitted to the workers' server and handed over."""
JOBS = 20_000
CONCURRENCY = 100
BESIDE_SECONDS = 20.0
HELD_ROWS = 6
_PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Moment:
    """Some seconds of the steady load."""

    rate: float
    claim: StatementTimes
    hand_over: StatementTimes
    latencies: list[float]
    horizon: float
    bloat: Bloat
    drained: float | None = None


COLUMNS: list[Column[Moment]] = [
    Column("done", "jobs/s", lambda moment: moment.rate),
    Column("claim, mean", "ms", lambda moment: moment.claim.mean_ms),
    Column("claim, p99", "ms", lambda moment: moment.claim.p99_ms),
    Column("handover, mean", "ms", lambda moment: moment.hand_over.mean_ms),
    Column("submit → start, p50", "ms", lambda moment: percentile(moment.latencies, 0.50)),
    Column("submit → start, p99", "ms", lambda moment: percentile(moment.latencies, 0.99)),
    Column(f"drain of {JOBS:,}", "jobs/s", lambda moment: moment.drained),
    Column("transactions since", "", lambda moment: moment.horizon),
    Column("dead rows", "", lambda moment: moment.bloat.dead_rows),
    Column("table", "MB", lambda moment: moment.bloat.table_megabytes),
    Column("indexes", "MB", lambda moment: moment.bloat.indexes_megabytes),
    Column("claim index", "MB", lambda moment: moment.bloat.claim_index_megabytes),
]


async def measure(stand: Stand) -> list[Figure]:
    held, beside = stand.lengths.held_seconds, BESIDE_SECONDS
    if stand.is_trial:
        held, beside = 6.0, 2.0
    async with _scene(stand) as scene:
        moments = await _watch(scene, held, beside)
    print(as_table(COLUMNS, moments), flush=True)
    return as_figures("held", COLUMNS, moments)


async def _watch(scene: _Scene, held: float, beside: float) -> dict[str, Moment]:
    await scene.pass_seconds(beside / 4)  # connections, prepared statements, a window that has grown
    moments = {"before": await scene.pass_seconds(beside, drained=True)}
    async with scene.transaction_held():
        for number in range(1, HELD_ROWS + 1):
            label = f"held for {number * held / HELD_ROWS:.0f} s"
            moments[label] = await scene.pass_seconds(held / HELD_ROWS, drained=number == HELD_ROWS)
    moments["released"] = await scene.pass_seconds(beside, drained=True)
    await scene.vacuum()
    moments["vacuumed"] = await scene.pass_seconds(beside, drained=True)
    return moments


class _Scene:
    """Two servers, workers at the first, a client of each, and a connection to look with."""

    def __init__(
        self,
        stand: Stand,
        dsn: str,
        first: Server,
        crew: Crew,
        clients: tuple[pulse.Pulse, pulse.Pulse],
        connection: asyncpg.Connection[asyncpg.Record],
    ) -> None:
        self._stand = stand
        self._dsn = dsn
        self._first = first
        self._crew = crew
        self._here, self._there = clients
        self._connection = connection

    async def pass_seconds(self, seconds: float, *, drained: bool = False) -> Moment:
        """Let the load pass for some seconds, and drain a backlog behind it if requested."""
        async with steady(self._here, HANDED_OVER) as here, steady(self._there, RATE - HANDED_OVER) as there:
            before, count, began = await self._first.metrics(), self._crew.count, time.monotonic()
            self._crew.news()
            with self._stand.background.watched():
                await asyncio.sleep(seconds)
            taken = time.monotonic() - began
            after, rate = await self._first.metrics(), (self._crew.count - count) / taken
            latencies = [(started - submitted) * 1000 for submitted, started in self._crew.news()]
        if here.behind + there.behind > RATE:
            print(f"the producers are {here.behind + there.behind:,} jobs behind", file=sys.stderr)
        moment = Moment(
            rate,
            statement_times(before, after, "claim_batch"),
            statement_times(before, after, "hand_over_jobs"),
            latencies,
            count_of(after, "pulse_database_horizon_transactions"),
            await look(self._connection),
        )
        return replace(moment, drained=await self._drain()) if drained else moment

    async def _drain(self) -> float:
        jobs = self._stand.sized(JOBS)
        await self._there.pause(topic=TOPIC)
        await self._there.enqueue_many(TOPIC, [payload(number) for number in range(jobs)])
        before = self._crew.count
        with self._stand.background.watched():
            began = time.monotonic()
            await self._there.resume(topic=TOPIC)
            await until(lambda: self._crew.count >= before + jobs, _PATIENCE_SECONDS)
            return jobs / (time.monotonic() - began)

    @asynccontextmanager
    async def transaction_held(self) -> AsyncIterator[None]:
        """Another session sees the database as it is now for as long as the block lasts."""
        holder = await asyncpg.connect(self._dsn)
        try:
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await holder.fetchval("SELECT count(*) FROM pulse.jobs WHERE queued")
            yield
            await holder.execute("COMMIT")
        finally:
            holder.terminate()

    async def vacuum(self) -> None:
        await self._connection.execute("VACUUM pulse.jobs", timeout=600)


@asynccontextmanager
async def _scene(stand: Stand) -> AsyncIterator[_Scene]:
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(stand.database())
        first, second = [
            await stack.enter_async_context(stand.pulsed(dsn, with_metrics=True)) for _ in range(2)
        ]
        crew = await stack.enter_async_context(stand.crew([first.address], CONCURRENCY))
        clients = [await stack.enter_async_context(client(server.address)) for server in (first, second)]
        connection = await asyncpg.connect(dsn)
        stack.push_async_callback(connection.close)
        crew.let_loose()
        await crew.is_connected()
        yield _Scene(stand, dsn, first, crew, (clients[0], clients[1]), connection)
