"""Tenants that share a topic: claims that find nothing, a light key beside a heavy one, and an idle queue."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from functools import partial

import pulse
from benchmarks import ranked
from benchmarks.draining import CONCURRENCY
from benchmarks.figures import Figure, percentiles
from benchmarks.filling import TOPIC, fill
from benchmarks.limiting import Limited, filled, limit
from benchmarks.repeating import in_turn, repeated
from benchmarks.scenarios import idle
from benchmarks.scenarios.limits import NO_LIMITS
from benchmarks.scenarios.load import payload
from benchmarks.stand import Stand
from pulse.topic_settings import Entries

BLOCKED = 1_000_000
_BLOCKED_KEYS = 1_000
_EMPTY_CLAIMS = 100
_EMPTY = f"an empty claim, {BLOCKED:,} jobs wait"
EMPTY_BY_KEYS = f"{_EMPTY} for {_BLOCKED_KEYS:,} keys that run 1 each"
EMPTY_BY_LIMIT = f"{_EMPTY} for the limit of the topic"
LIGHT = f"a key's only job beside {BLOCKED:,} of another"
LIGHT_JOBS = 200
_LIGHT_GAP_SECONDS = 0.04
IDLE_LIMITS: Mapping[str, Entries | None] = {
    NO_LIMITS: None,
    "20 at once": {"running": 20},
    "1 at once of each key": {"per_lane": 1},
}


async def measure(stand: Stand) -> list[Figure]:
    return [*await _empty_claims(stand), *await _light_tenant(stand), *await _idle(stand)]


async def _empty_claims(stand: Stand) -> list[Figure]:
    """A claim that finds nothing to start, though a million jobs wait."""
    keys = Limited({"per_lane": 1}, _BLOCKED_KEYS)
    jobs = stand.sized(BLOCKED)
    async with filled(stand, keys, jobs) as sessions:
        for _ in range(jobs // 2_000 + 5):  # until all keys run, and all notices are read
            await sessions.claim(keys)

        async def claims() -> float:
            times = []
            with stand.background.watched():
                for _ in range(_EMPTY_CLAIMS):
                    began = time.perf_counter()
                    assert not await sessions.claim(keys)
                    times.append((time.perf_counter() - began) * 1000)
            return statistics.median(times)

        by_keys = await repeated(stand, "empty claims, keys", claims)
        await sessions.limits.limit_topic(TOPIC, {"running": _BLOCKED_KEYS // 2, "per_lane": 1})
        by_limit = await repeated(stand, "empty claims, limit", claims)
    by_rank = await ranked.claim_times(stand, jobs, _BLOCKED_KEYS, stand.repeats)
    note = f"median of {_EMPTY_CLAIMS}"
    return [
        Figure("tenants", EMPTY_BY_KEYS, "ms", by_keys, note),
        Figure("tenants", EMPTY_BY_LIMIT, "ms", by_limit, note),
        Figure(
            "tenants", f"{EMPTY_BY_KEYS}, ranked", "ms", by_rank, "the way of Hatchet, as SQL", system="raw"
        ),
    ]


async def _light_tenant(stand: Stand) -> list[Figure]:
    """A key with a million jobs that run all the time, and a job of another key now and then."""
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        await limit(server.address, {"turns": True})
        await fill(dsn, stand.sized(BLOCKED), lanes=1)
        await stand.settle(dsn)
        runs = await repeated(stand, "a light key", partial(_light_jobs, stand, server.address))
    return percentiles("tenants", LIGHT, runs, "call of enqueue to start, while that one is drained")


async def _light_jobs(stand: Stand, address: str) -> list[float]:
    jobs = stand.sized(LIGHT_JOBS)
    async with stand.crew([address], CONCURRENCY) as crew, pulse.Pulse(address) as p:
        crew.let_loose()
        await crew.is_connected()
        await crew.has_started(CONCURRENCY)
        with stand.background.watched():
            begin = time.time()
            for number in range(jobs):
                await asyncio.sleep(max(0.0, begin + number * _LIGHT_GAP_SECONDS - time.time()))
                await p.enqueue(TOPIC, payload(number), lane=f"light-{number}")
            await asyncio.sleep(1)
            end = time.time()
        # The moment of submission in the jobs of the heavy key is a constant.
        found = [pair for pair in crew.pairs() if begin <= pair[0] <= end]
    assert len(found) == jobs, f"{jobs - len(found)} of {jobs} jobs have not started"
    return [(started - submitted) * 1000 for submitted, started in found]


def idle_name(policy: str) -> str:
    return f"idle queue, {policy}, submit → start"


async def _idle(stand: Stand) -> list[Figure]:
    runs = {idle_name(policy): partial(_idle_run, stand, of) for policy, of in IDLE_LIMITS.items()}
    outcomes = await in_turn(stand, runs)
    plain: list[Figure] = []
    figures = []
    for policy, results in outcomes.items():
        found = percentiles("tenants", policy, results)
        plain = plain or found
        for figure, other in zip(found, plain, strict=True):
            note = "" if found is plain else f"{figure.median / other.median:.2f} × {NO_LIMITS}"
            figures.append(Figure("tenants", figure.name, figure.unit, figure.repeats, note))
    return figures


async def _idle_run(stand: Stand, limits: Entries | None) -> list[float]:
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        if limits is not None:
            await limit(server.address, limits)
        return await idle.latencies(
            stand,
            server.address,
            stand.sized(idle.JOBS),
            lanes=1_000 if limits and "per_lane" in limits else 0,
        )
