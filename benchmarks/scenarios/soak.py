"""Half of top speed for a long time, with jobs that fail: memory, sizes and latencies must stay as they are.

Top speed is measured first. Then of twenty jobs one fails once and of a hundred one is discarded, finished
jobs are kept for a minute, and autovacuum has its defaults. A table shows each minute, and verdicts the
whole. Retention has a pass every five minutes, so that sizes can be judged from about 25 minutes on.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import asyncpg

import pulse
from benchmarks.counters import count_of
from benchmarks.crew import Crew
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC
from benchmarks.flawed_worker import PROGRAM, flawed_payload
from benchmarks.meters import IS_AVAILABLE
from benchmarks.processes import Server
from benchmarks.scenarios.load import client
from benchmarks.series import Column, as_figures, as_table
from benchmarks.stand import Stand
from benchmarks.steady import steady
from benchmarks.verdicts import Verdict, stays_bounded, stays_flat
from benchmarks.vigil import Minute, Vigil

SHARE = 0.5
PROCESSES = 2
CONCURRENCY = 100
SAMPLE_SECONDS = 10.0
SAMPLES_A_MINUTE = 6
RETENTION = {f"PULSE_RETENTION_{status}": "1m" for status in ("COMPLETED", "CANCELED", "DEAD_LETTERED")}
TOP_SECONDS = 20.0
# The last starts of a worker. The file counts as its memory, so it must soon be full.
_RECORDED = 200_000
_TOP_BATCH, _TOP_CALLS, _TOP_BACKLOG = 500, 8, 4_000
_PATIENCE_SECONDS = 120

COLUMNS: list[Column[Minute]] = [
    Column("done", "jobs/s", lambda minute: minute.rate),
    Column("submit → start, p50", "ms", lambda minute: minute.p50),
    Column("submit → start, p99", "ms", lambda minute: minute.p99),
    Column("memory of pulsed", "MB", lambda minute: minute.server_megabytes),
    Column("memory of a worker", "MB", lambda minute: minute.worker_megabytes),
    Column("table", "MB", lambda minute: minute.bloat.table_megabytes),
    Column("indexes", "MB", lambda minute: minute.bloat.indexes_megabytes),
    Column("dead rows", "", lambda minute: minute.bloat.dead_rows),
]


class Scene(NamedTuple):
    server: Server
    crew: Crew
    client: pulse.Pulse
    connection: asyncpg.Connection[asyncpg.Record]


async def measure(stand: Stand) -> list[Figure]:
    if not IS_AVAILABLE:
        raise SystemExit("soak reads the memory of processes from /proc, which this machine does not have.")
    minutes, interval, top_seconds = stand.lengths.soak_minutes, SAMPLE_SECONDS, TOP_SECONDS
    if stand.is_trial:
        minutes, interval, top_seconds = 2, 0.5, 3.0
    async with _scene(stand) as scene:
        top = await _top_speed(scene, top_seconds)
    print(f"top speed: {top:,.0f} jobs/s; the soak goes at {SHARE * top:,.0f}", file=sys.stderr)
    async with _scene(stand) as scene:
        moments, ends = await _soak(scene, SHARE * top, max(1, round(minutes)), interval)
    stand.verdicts += [*judged(list(moments.values()), SHARE * top), ends]
    print(as_table(COLUMNS, moments), flush=True)
    for verdict in stand.verdicts:
        print(verdict.line, flush=True)
    return [Figure("soak", "top speed", "jobs/s", [top]), *as_figures("soak", COLUMNS, moments)]


def judged(minutes: Sequence[Minute], rate: float) -> list[Verdict]:
    """The verdicts on the run as a whole, which was to reach this rate."""
    usual = statistics.median(minute.rate for minute in minutes)
    server = [minute.server_megabytes for minute in minutes]
    worker = [minute.worker_megabytes for minute in minutes]
    table = [minute.bloat.table_megabytes for minute in minutes]
    indexes = [minute.bloat.indexes_megabytes for minute in minutes]
    p99 = [minute.p99 for minute in minutes]
    return [
        Verdict("rate", f"{usual:,.0f} of {rate:,.0f} jobs/s, median of the minutes", usual > 0.95 * rate),
        stays_flat("memory of pulsed", "MB", server, tolerance=0.03, spare=1.0),
        stays_flat("memory of a worker", "MB", worker, tolerance=0.03, spare=1.0),
        stays_bounded("table", "MB", table, tolerance=0.1),
        stays_bounded("indexes", "MB", indexes, tolerance=0.1),
        stays_flat("submit → start, p99", "ms", p99, tolerance=0.25, spare=5.0),
    ]


async def _soak(
    scene: Scene, rate: float, minutes: int, interval: float
) -> tuple[dict[str, Minute], Verdict]:
    moments: dict[str, Minute] = {}
    async with steady(scene.client, rate, flawed_payload) as load:
        vigil = Vigil(scene.server, scene.crew, scene.connection, interval)
        for number in range(1, minutes + 1):
            moments[f"minute {number}"] = minute = await vigil.minute(SAMPLES_A_MINUTE)
            print(
                f"minute {number}: {minute.rate:,.0f} jobs/s, p99 {minute.p99:.1f} ms, "
                f"pulsed {minute.server_megabytes:.1f} MB",
                file=sys.stderr,
            )
    return moments, await _all_ended(scene, load.submitted)


async def _all_ended(scene: Scene, submitted: int) -> Verdict:
    """Wait until each job has completed or was discarded. None may be left over, none be counted twice."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        metrics, label = await scene.server.metrics(), f'topic="{TOPIC}"'
        completed, dead = (
            int(count_of(metrics, f"pulse_jobs_{how}_total", label)) for how in ("completed", "dead_lettered")
        )
        if completed + dead >= submitted or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    outcome = f"of {submitted:,} jobs {completed:,} completed and {dead:,} were discarded"
    return Verdict("every job", outcome, completed + dead == submitted)


async def _top_speed(scene: Scene, seconds: float) -> float:
    """Return how many jobs a second pass if as many are submitted as the server takes."""
    crew, submitted, stops = scene.crew, 0, time.monotonic() + seconds * 5 / 4

    async def produce() -> None:
        nonlocal submitted
        while time.monotonic() < stops:
            if submitted - crew.count > _TOP_BACKLOG:
                await asyncio.sleep(0.002)
                continue
            batch = [flawed_payload(submitted + number) for number in range(_TOP_BATCH)]
            submitted += _TOP_BATCH
            await scene.client.enqueue_many(TOPIC, batch)

    async with asyncio.TaskGroup() as producers:
        for _ in range(_TOP_CALLS):
            producers.create_task(produce())
        await asyncio.sleep(seconds / 4)  # windows that grow, prepared statements
        count, began = crew.count, time.monotonic()
        await asyncio.sleep(seconds)
        return (crew.count - count) / (time.monotonic() - began)


@asynccontextmanager
async def _scene(stand: Stand) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(stand.database())
        server = await stack.enter_async_context(stand.pulsed(dsn, RETENTION, with_metrics=True))
        crew = await stack.enter_async_context(
            stand.crew(
                [server.address], CONCURRENCY, processes=PROCESSES, program=PROGRAM, recorded=_RECORDED
            )
        )
        p = await stack.enter_async_context(client(server.address))
        connection = await asyncpg.connect(dsn)
        stack.push_async_callback(connection.close)
        crew.let_loose()
        await crew.is_connected()
        yield Scene(server, crew, p, connection)
