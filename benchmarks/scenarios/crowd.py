"""Five hundred connected workers: their cost at rest, and the cost of a drain through them.

They live in a few processes. Each worker has its own connection, stream and heartbeats. At rest the
statements of pulsed are counted for twenty seconds. Then handlers that never end hold 10,000 jobs,
and 20,000 other jobs go through the remaining slots.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

from benchmarks.counters import count_of, read_transactions, statements_in
from benchmarks.crowd_worker import HELD_TOPIC
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.meters import IS_AVAILABLE, cpu_seconds, resident_megabytes
from benchmarks.processes import Server, end, until
from benchmarks.recorder import Recording
from benchmarks.repeating import repeated
from benchmarks.stand import Stand

PROCESSES = 5
WORKERS = 500
CONCURRENCY = 40
HELD = 10_000
JOBS = 20_000
REST_SECONDS = 20.0
DRAIN = f"drain of {JOBS:,} through them"
# Time for the work after connecting five hundred workers, and for the first heartbeats.
_SETTLE_SECONDS = 5.0
_PATIENCE_SECONDS = 180

_LEFT = "SELECT EXISTS (SELECT FROM pulse.jobs WHERE topic = $1 AND finished_at IS NULL)"


class Outcome(NamedTuple):
    statements: float
    transactions: float
    cores: float
    at_rest: float
    held: float
    drained: float
    rate: float


async def measure(stand: Stand) -> list[Figure]:
    workers = stand.sized(WORKERS)
    runs = await repeated(stand, "crowd", lambda: _run(stand))
    about = f"{workers:,} idle workers"

    def figure(name: str, unit: str, values: list[float], note: str = "") -> Figure:
        return Figure("crowd", name, unit, values, note)

    drained = figure(DRAIN, "jobs/s", [run.rate for run in runs])
    if stand.is_brief:
        return [drained]
    figures = [
        figure(f"{about}, statements of pulsed", "per s", [run.statements for run in runs]),
        figure(f"{about}, transactions in the database", "per s", [run.transactions for run in runs]),
        drained,
    ]
    if not IS_AVAILABLE:
        return figures
    held = f"{stand.sized(HELD):,} jobs held"
    return [
        *figures,
        figure(f"{about}, CPU of pulsed", "cores", [run.cores for run in runs]),
        figure(f"{about}, memory of pulsed", "MB", [run.at_rest for run in runs]),
        figure(f"{held}, memory of pulsed", "MB", [run.held for run in runs]),
        figure(f"{held} and {JOBS:,} drained, memory of pulsed", "MB", [run.drained for run in runs]),
    ]


async def _run(stand: Stand) -> Outcome:
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn, with_metrics=True) as server,
        _crowd(stand, server) as recordings,
    ):
        await asyncio.sleep(_SETTLE_SECONDS)
        statements, transactions, cores = 0.0, 0.0, 0.0
        if not stand.is_brief:
            with stand.background.watched():
                statements, transactions, cores = await _rest(stand, dsn, server)
        at_rest = _memory(server)
        await fill(dsn, stand.sized(HELD), into=[HELD_TOPIC])
        await _all_held(server, stand.sized(HELD))
        held = _memory(server)
        with stand.background.watched():
            rate = await _drain(stand, dsn, recordings)
        return Outcome(statements, transactions, cores, at_rest, held, _memory(server), rate)


@asynccontextmanager
async def _crowd(stand: Stand, server: Server) -> AsyncIterator[list[Recording]]:
    processes: list[subprocess.Popen[bytes]] = []
    recordings: list[Recording] = []
    each = str(stand.sized(WORKERS) // PROCESSES)
    try:
        for _ in range(PROCESSES):
            recordings.append(Recording.create(stand.folder))
            arguments = [server.address, each, str(CONCURRENCY), str(recordings[-1].path)]
            processes.append(subprocess.Popen([stand.python, "-m", "benchmarks.crowd_worker", *arguments]))
        await until(lambda: all(recording.is_connected for recording in recordings))
        yield recordings
    finally:
        for process in processes:
            # Their handlers never end: there is nothing to wait for.
            await end(process, signal.SIGKILL)
        for recording in recordings:
            recording.close()


async def _rest(stand: Stand, dsn: str, server: Server) -> tuple[float, float, float]:
    """Return the statements and transactions per second, and the cores that pulsed uses."""

    async def look() -> tuple[int, int, float]:
        counted = await read_transactions(stand.server_dsn, dsn, when_all_left=False)
        cpu = cpu_seconds([server.pid]) if IS_AVAILABLE else 0.0
        return statements_in(await server.metrics()), sum(counted), cpu

    seconds = REST_SECONDS / 4 if stand.is_trial else REST_SECONDS
    before, began = await look(), time.monotonic()
    await asyncio.sleep(seconds)
    after, taken = await look(), time.monotonic() - began
    first, second, third = ((now - then) / taken for now, then in zip(after, before, strict=True))
    return first, second, third


async def _all_held(server: Server, jobs: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while count_of(await server.metrics(), "pulse_workers_held_jobs") < jobs:
        if time.monotonic() > deadline:
            raise TimeoutError("the workers did not take all jobs that they are to hold")
        await asyncio.sleep(0.1)


async def _drain(stand: Stand, dsn: str, recordings: list[Recording]) -> float:
    jobs = stand.sized(JOBS)
    await fill(dsn, jobs)
    await until(lambda: sum(recording.count for recording in recordings) >= jobs, _PATIENCE_SECONDS)
    connection = await asyncpg.connect(dsn)
    try:
        while await connection.fetchval(_LEFT, TOPIC):
            await asyncio.sleep(0.005)
    finally:
        await connection.close()
    finished = time.time()
    return jobs / (finished - min(started for one in recordings for _, started in one.pairs()))


def _memory(server: Server) -> float:
    return resident_megabytes([server.pid]) if IS_AVAILABLE else 0.0
