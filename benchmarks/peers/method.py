"""How every peer is measured, which is how pulse is measured: the same load, the same clocks.

- submit: producers that each await one enqueue at a time.
- bulk: one caller, in batches.
- drain: a preloaded queue; from the first handler until the store holds nothing unfinished.
- e2e: producers and workers at the same time; from the first submit until the store holds nothing unfinished.
- idle: one job now and then; from its submit to its handler.
- limits: the drain, with the limits that the peer has.
- scale: the drain, with more and more processes.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from benchmarks.figures import Figure, percentiles
from benchmarks.peers.crew import Runner, Watch
from benchmarks.peers.peer import Shift
from benchmarks.peers.postgres_store import PostgresStore
from benchmarks.peers.stores import Store, fresh_store
from benchmarks.repeating import in_turn, repeated
from benchmarks.scenarios import scale
from benchmarks.scenarios.e2e import shapes
from benchmarks.scenarios.limits import KEYS, LIMIT, NO_LIMITS
from benchmarks.stand import Stand

SUBMITTED = 5_000
BULK = 20_000
DRAINED = 20_000
IDLE = 200
PRODUCERS = 8
_BATCH = 1_000
_IDLE_GAP_SECONDS = 0.02
# A longer drain is cut off, and reported by the jobs it has done until then.
_DRAIN_CAP_SECONDS = 15
_E2E_CAP_SECONDS = 60
_START_SECONDS = 30
_WARM_UP_JOBS = 80
# One process may take all jobs of a round; that every one has run some is worth a few, not more.
_WARM_UP_ROUNDS = 4
_WARM_UP_ROUND_SECONDS = 20
_QUIET_SECONDS = 1.0


async def submit(stand: Stand, runner: Runner) -> list[Figure]:
    async def run() -> float:
        jobs = stand.sized(SUBMITTED)
        async with fresh_store(stand, runner.peer.store) as store:
            await _install(runner, store)
            with stand.background.watched():
                return jobs / await runner.run(store, "produce", jobs, PRODUCERS, 0)

    rates = await repeated(stand, runner.peer.name, run)
    return [Figure("submit", f"{PRODUCERS} producers", "jobs/s", rates, runner.versions, runner.peer.name)]


async def bulk(stand: Stand, runner: Runner) -> list[Figure]:
    if not runner.peer.has_bulk:
        return []

    async def run() -> float:
        jobs = stand.sized(BULK)
        async with fresh_store(stand, runner.peer.store) as store:
            await _install(runner, store)
            with stand.background.watched():
                return jobs / await runner.run(store, "bulk", jobs, _BATCH)

    rates = await repeated(stand, runner.peer.name, run)
    return [Figure("bulk", f"{BULK:,} in bulk", "jobs/s", rates, runner.versions, runner.peer.name)]


async def drain(stand: Stand, runner: Runner) -> list[Figure]:
    shifts = {
        f"{DRAINED:,} jobs, 1 worker process": Shift("drain", processes=1, slots=100),
        f"{DRAINED:,} jobs, 2 worker processes": Shift("drain", processes=2, slots=100),
    }
    async with fresh_store(stand, runner.peer.store) as template:
        await _install(runner, template)
        jobs = await _fill(runner, template, stand.sized(DRAINED))
        runs = {
            name: partial(_drain_copy, stand, runner, template, jobs, shift) for name, shift in shifts.items()
        }
        rates = await in_turn(stand, runs)
    return [
        Figure("drain", name, "jobs/s", rates[name], runner.about(shift), runner.peer.name)
        for name, shift in shifts.items()
    ]


async def _fill(runner: Runner, store: Store, jobs: int) -> int:
    """Submit the jobs and the warm-up jobs. Returns how many the store counts."""
    if runner.peer.has_bulk:
        await runner.run(store, "bulk", jobs, _BATCH)
    else:
        await runner.run(store, "produce", jobs, PRODUCERS, 0)
    await store.settle()
    return await store.count(runner.peer.unfinished)


async def _drain_copy(stand: Stand, runner: Runner, template: Store, jobs: int, shift: Shift) -> float:
    async with (
        fresh_store(stand, runner.peer.store, template) as store,
        runner.crew(store, shift) as watch,
    ):
        # A peer that its own command line starts does not wait: its first hit shows that it is up.
        await watch.until(
            lambda: watch.connected >= shift.processes or watch.hits > 0, _START_SECONDS, "it did not start"
        )
        with stand.background.watched():
            watch.let_loose()
            await watch.until(lambda: watch.hits > 0, _START_SECONDS, "no job has started")
            is_finished = await runner.finish(store, watch, jobs, _DRAIN_CAP_SECONDS)
            end = time.time()
        done = jobs if is_finished else min(watch.hits, jobs - await store.count(runner.peer.unfinished))
        return done / (end - min(started for _, started in watch.pairs()))


async def e2e(stand: Stand, runner: Runner) -> list[Figure]:
    shifts = {
        f"{processes} processes × {slots}": Shift("e2e", processes, slots)
        for processes, slots in shapes(stand)
    }
    runs = {name: partial(_run_e2e, stand, runner, shift) for name, shift in shifts.items()}
    outcomes = await in_turn(stand, runs)
    figures = []
    for name, shift in shifts.items():
        rates = [rate for rate, _ in outcomes[name]]
        latencies = [milliseconds for _, milliseconds in outcomes[name]]
        about = runner.about(shift)
        figures.append(Figure("e2e", name, "jobs/s", rates, about, runner.peer.name))
        figures += percentiles("e2e", name, latencies, about, runner.peer.name)
    return figures


async def _run_e2e(stand: Stand, runner: Runner, shift: Shift) -> tuple[float, list[float]]:
    jobs, producers = stand.load.jobs, stand.load.producers
    async with fresh_store(stand, runner.peer.store) as store:
        await _install(runner, store)
        async with runner.crew(store, shift) as watch:
            await _warm_up(runner, store, watch, shift.processes)
            all_jobs = watch.hits + producers + jobs
            with stand.background.watched():
                begin = time.time()
                await runner.run(store, "produce", jobs, producers, 0)
                await runner.finish(store, watch, all_jobs, _E2E_CAP_SECONDS)
                end = time.time()
            pairs = watch.pairs(since=begin)
            if not pairs:
                raise watch.failure("no job has started")
            rate = len(pairs) / (end - min(submitted for submitted, _ in pairs))
            return rate, _milliseconds(pairs)


async def idle(stand: Stand, runner: Runner) -> list[Figure]:
    shift = Shift("idle", processes=1, slots=20)
    runs = await repeated(stand, runner.peer.name, partial(_run_idle, stand, runner, shift))
    return percentiles("idle", "submit → start", runs, runner.about(shift), runner.peer.name)


async def _run_idle(stand: Stand, runner: Runner, shift: Shift) -> list[float]:
    jobs = stand.sized(IDLE)
    async with fresh_store(stand, runner.peer.store) as store:
        await _install(runner, store)
        async with runner.crew(store, shift) as watch:
            await _warm_up(runner, store, watch, shift.processes)
            all_jobs = watch.hits + 1 + jobs
            with stand.background.watched():
                begin = time.time()
                await runner.run(store, "produce", jobs, 1, _IDLE_GAP_SECONDS)
                if not await runner.finish(store, watch, all_jobs, _START_SECONDS):
                    raise watch.failure(f"{all_jobs - watch.hits} of {jobs} jobs have not started")
            return _milliseconds(watch.pairs(since=begin))


async def limits(stand: Stand, runner: Runner) -> list[Figure]:
    """The same jobs without limits, and with every kind of limit that the peer has."""
    shifts = {NO_LIMITS: Shift("drain", processes=1, slots=100)}
    if runner.peer.has_limit:
        shifts[LIMIT] = Shift("limit", processes=1, slots=100)
    if runner.peer.keyed:
        shifts[KEYS] = Shift("keys", processes=1, slots=100)
    if len(shifts) == 1:
        return []
    async with AsyncExitStack() as stack:
        runs = {}
        for name, shift in shifts.items():
            template = await stack.enter_async_context(fresh_store(stand, runner.peer.store))
            await _install(runner, template)
            jobs = await _fill(runner, template, stand.sized(DRAINED))
            if shift.scenario == "keys":
                assert isinstance(template, PostgresStore)
                await template.change(runner.peer.keyed)
            runs[name] = partial(_drain_copy, stand, runner, template, jobs, shift)
        rates = await in_turn(stand, runs)
    figures = []
    for name, shift in shifts.items():
        share = statistics.median(rates[name]) / statistics.median(rates[NO_LIMITS])
        about = (
            runner.about(shift) if name == NO_LIMITS else f"{share:.2f} × no limits; {runner.about(shift)}"
        )
        figures.append(Figure("limits", f"drain, {name}", "jobs/s", rates[name], about, runner.peer.name))
    return figures


async def scaled(stand: Stand, runner: Runner) -> list[Figure]:
    """A drain with as many worker processes as the cores can hold."""
    shifts = {
        f"drain, {processes} processes": Shift("drain", processes, slots=100)
        for processes in scale.worker_counts()
    }
    async with fresh_store(stand, runner.peer.store) as template:
        await _install(runner, template)
        jobs = await _fill(runner, template, stand.sized(scale.QUEUED))
        runs = {
            name: partial(_drain_copy, stand, runner, template, jobs, shift) for name, shift in shifts.items()
        }
        rates = await in_turn(stand, runs)
    return [
        Figure(scale.NAME, name, "jobs/s", rates[name], runner.about(shift), runner.peer.name)
        for name, shift in shifts.items()
    ]


async def _install(runner: Runner, store: Store) -> None:
    await runner.run(store, "install")
    await store.settle()


async def _warm_up(runner: Runner, store: Store, watch: Watch, processes: int) -> None:
    """Return when every worker process is up and, within a few rounds of jobs, has run some of them."""
    await watch.until(lambda: watch.connected >= processes, _START_SECONDS, "a worker process is not up")
    watch.let_loose()
    for _ in range(_WARM_UP_ROUNDS):
        await asyncio.sleep(_QUIET_SECONDS)
        all_jobs = watch.hits + PRODUCERS + _WARM_UP_JOBS
        await runner.run(store, "produce", _WARM_UP_JOBS, PRODUCERS, 0)
        if not await runner.finish(store, watch, all_jobs, _WARM_UP_ROUND_SECONDS):
            raise watch.failure(f"{all_jobs - watch.hits} jobs of the warm-up have not started")
        if watch.with_hits >= processes:
            break
    await asyncio.sleep(_QUIET_SECONDS)


def _milliseconds(pairs: list[tuple[float, float]]) -> list[float]:
    return [(started - submitted) * 1000 for submitted, started in pairs]


SCENARIOS: dict[str, Callable[[Stand, Runner], Coroutine[Any, Any, list[Figure]]]] = {
    "submit": submit,
    "bulk": bulk,
    "drain": drain,
    "e2e": e2e,
    "idle": idle,
    "limits": limits,
    scale.NAME: scaled,
}
