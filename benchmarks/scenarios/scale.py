"""Many cores: servers and workers are added until the machine is full.

A drain by servers and workers, submits by servers and callers, and both at once. Only shapes are measured
that the cores of the machine can hold: on two cores the first of each.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.meters import IS_AVAILABLE, cpu_seconds
from benchmarks.processes import Server, end
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

NAME = "scale"
QUEUED = 200_000
SECONDS = 6.0
SLOTS = 50


class Shape(NamedTuple):
    """How many processes take part, and how many calls are under way in each producer."""

    servers: int
    workers: int = 0
    producers: int = 0
    callers: int = 0

    @property
    def cores(self) -> int:
        """About how many cores it can use; Postgres needs as many as the servers."""
        return max(2, 2 * self.servers + (self.workers + self.producers) // 2)

    @property
    def name(self) -> str:
        workers = f", {_count(self.workers, 'worker')}" if self.workers else ""
        callers = f", {self.producers * self.callers:,} callers" if self.callers else ""
        return f"{_count(self.servers, 'server')}{workers}{callers}"


DRAINS = tuple(Shape(*counts) for counts in ((1, 1), (1, 2), (1, 4), (2, 4), (4, 6), (4, 8)))
SUBMITS = tuple(
    Shape(servers, 0, producers, callers)
    for servers, producers, callers in ((1, 1, 8), (1, 1, 64), (2, 4, 64), (4, 8, 64), (4, 8, 256))
)
LOADS = tuple(Shape(*counts) for counts in ((1, 2, 1, 64), (1, 4, 2, 32), (2, 4, 2, 64), (4, 8, 4, 128)))


class Produced(NamedTuple):
    """What a producer prints: milliseconds of its calls."""

    jobs: int
    p50: float
    p99: float


class Submitted(NamedTuple):
    rate: float
    p50: float
    p99: float
    cpu: dict[str, float]
    """Microseconds of each job, by process."""


async def measure(stand: Stand) -> list[Figure]:
    figures: list[Figure] = []
    drains = await in_turn(stand, {shape.name: partial(_drain, stand, shape) for shape in _fitting(DRAINS)})
    for name, runs in drains.items():
        cores = [sum(run.cpu.values()) * run.rate / 1e6 for run in runs]
        note = f"{min(cores):.1f} … {max(cores):.1f} cores busy"
        figures.append(Figure(NAME, f"drain, {name}", "jobs/s", [run.rate for run in runs], note))
        figures += _costs(f"drain, {name}", [run.cpu for run in runs])
    for about, shapes, run in (("submit", SUBMITS, _submit), ("e2e", LOADS, _load)):
        found = await in_turn(stand, {shape.name: partial(run, stand, shape) for shape in _fitting(shapes)})
        for name, results in found.items():
            what = f"{about}, {name}"
            figures.append(Figure(NAME, what, "jobs/s", [result.rate for result in results]))
            figures.append(Figure(NAME, f"{what}, p50", "ms", [result.p50 for result in results]))
            figures.append(Figure(NAME, f"{what}, p99", "ms", [result.p99 for result in results]))
            figures += _costs(what, [result.cpu for result in results])
    return figures


def worker_counts() -> list[int]:
    """The numbers of worker processes with which another queue is drained beside pulse."""
    return [count for count in (1, 2, 4, 8, 12) if count <= _cores()]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fitting(shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes for which there are cores; the first in any case."""
    return [shape for shape in shapes if shape is shapes[0] or shape.cores <= _cores()]


def _costs(about: str, costs: Sequence[Mapping[str, float]]) -> list[Figure]:
    return [
        Figure(NAME, f"{about}, CPU in {who}", "µs/job", [cost[who] for cost in costs])
        for who in (costs[0] if all(costs) else ())
    ]


async def _drain(stand: Stand, shape: Shape) -> Drained:
    jobs = stand.sized(QUEUED)
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        await stand.settle(dsn)
        async with stand.replicas(dsn, shape.servers) as servers:
            return await drain(stand, dsn, servers, [TOPIC], jobs, processes=shape.workers)


async def _submit(stand: Stand, shape: Shape) -> Submitted:
    async with stand.database() as dsn, stand.replicas(dsn, shape.servers) as servers:
        await stand.settle(dsn)
        async with _producers(stand, shape, servers) as producers:
            before = _cpu(stand, servers)
            with stand.background.watched():
                found = await producers.run()
            used = _cpu(stand, servers)
    jobs = sum(each.jobs for each in found)
    return Submitted(
        jobs / _seconds(stand),
        statistics.median(each.p50 for each in found),
        max(each.p99 for each in found),
        {who: (used[who] - before[who]) * 1e6 / jobs for who in used},
    )


async def _load(stand: Stand, shape: Shape) -> Submitted:
    """The latency is from the call of `enqueue` to the start of the handler."""
    async with stand.database() as dsn, stand.replicas(dsn, shape.servers) as servers:
        await stand.settle(dsn)
        addresses = [server.address for server in servers]
        async with (
            stand.crew(addresses, SLOTS, processes=shape.workers) as crew,
            _producers(stand, shape, servers) as producers,
        ):
            crew.let_loose()
            await crew.is_connected()
            before = _cpu(stand, servers)
            with stand.background.watched():
                began = time.time()
                found = await producers.run()
                jobs = sum(each.jobs for each in found)
                await crew.has_started(jobs)
                took = time.time() - began
            used = _cpu(stand, servers)
            waits = sorted(started - submitted for submitted, started in crew.pairs() if submitted >= began)
    return Submitted(
        jobs / took,
        waits[len(waits) // 2] * 1000,
        waits[len(waits) * 99 // 100] * 1000,
        {who: (used[who] - before[who]) * 1e6 / jobs for who in used},
    )


class Producers:
    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    async def are_connected(self) -> None:
        for process in self._processes:
            await self._line(process)

    async def run(self) -> list[Produced]:
        """Have all submit at once. Returns the result of each."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        return [Produced(**json.loads(await self._line(process))) for process in self._processes]

    async def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise RuntimeError("a producer ended before it was done")
        return line


@asynccontextmanager
async def _producers(stand: Stand, shape: Shape, servers: Sequence[Server]) -> AsyncIterator[Producers]:
    program = [stand.python, "-m", "benchmarks.producer"]
    processes = [
        subprocess.Popen(
            [*program, servers[number % len(servers)].address, str(shape.callers), str(_seconds(stand))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(shape.producers)
    ]
    try:
        producers = Producers(processes)
        await producers.are_connected()
        yield producers
    finally:
        for process in processes:
            await end(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _cpu(stand: Stand, servers: Sequence[Server]) -> dict[str, float]:
    trees = {"pulsed": [server.pid for server in servers]}
    if stand.postmaster is not None:
        trees["Postgres"] = [stand.postmaster]
    return {name: cpu_seconds(roots) for name, roots in trees.items()} if IS_AVAILABLE else {}


def _seconds(stand: Stand) -> float:
    return SECONDS / 6 if stand.is_trial else SECONDS


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"
