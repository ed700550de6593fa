"""Drains under limits, and in turns, each beside the same work in a topic without limits.

The drains by SQL claim and complete 500 jobs at a time, one statement after the other. The other
drains use a pulsed and a worker process with a no-op handler.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from benchmarks import ranked
from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.limiting import JOBS, Limited, drain_by_sql, limit
from benchmarks.repeating import Runs, in_turn
from benchmarks.stand import Stand

NO_LIMITS = "no limits"
LIMIT = "500 at once"
KEYS = "10,000 keys, 1 at once of each"
MANY_KEYS = "100,000 keys, 1 at once of each"
POLICIES: Mapping[str, Limited | None] = {
    NO_LIMITS: None,
    LIMIT: Limited({"running": 500}),
    "2,500 at once": Limited({"running": 2500}),
    KEYS: Limited({"per_lane": 1}, 10_000),
    MANY_KEYS: Limited({"per_lane": 1}, 100_000, 100_000),
    "turns of 1,000 keys": Limited({"turns": True}, 1_000),
}
_RANKED = f"SQL, {KEYS}, ranked by each claim"


async def measure(stand: Stand) -> list[Figure]:
    return [*await _drains_by_sql(stand), *await _drains(stand)]


async def _drains_by_sql(stand: Stand) -> list[Figure]:
    runs: dict[str, Callable[[], Awaitable[Drained]]] = {
        f"SQL, {name}": partial(drain_by_sql, stand, limited) for name, limited in POLICIES.items()
    }
    runs[_RANKED] = partial(ranked.drain, stand)
    outcomes = await in_turn(stand, runs)
    rates = [run.rate for run in outcomes.pop(_RANKED)]
    return [
        *_rates(outcomes, f"SQL, {NO_LIMITS}"),
        Figure("limits", _RANKED, "jobs/s", rates, "the way of Hatchet, as SQL", system="raw"),
    ]


async def _drains(stand: Stand) -> list[Figure]:
    runs: Runs[Drained] = {
        f"drain, {name}": partial(_drain, stand, limited) for name, limited in POLICIES.items()
    }
    return _rates(await in_turn(stand, runs), f"drain, {NO_LIMITS}")


async def _drain(stand: Stand, limited: Limited | None) -> Drained:
    jobs = stand.sized(limited.jobs if limited else JOBS)
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        if limited is not None:
            await limit(server.address, limited.limits)
        await fill(dsn, jobs, lanes=limited.lanes if limited else 0)
        await stand.settle(dsn)
        return await drain(stand, dsn, [server], [TOPIC], jobs)


def _rates(outcomes: Mapping[str, Sequence[Drained]], plain: str) -> list[Figure]:
    """Return jobs per second and the CPU of Postgres, each relative to the plain drain."""
    figures = []
    rates = {name: [run.rate for run in runs] for name, runs in outcomes.items()}
    costs = {name: [run.cpu["Postgres"] for run in runs if run.cpu] for name, runs in outcomes.items()}
    for name in outcomes:
        share = statistics.median(rates[name]) / statistics.median(rates[plain])
        note = "" if name == plain else f"{share:.2f} × {NO_LIMITS}"
        figures.append(Figure("limits", name, "jobs/s", rates[name], note))
        if costs[name]:
            times = statistics.median(costs[name]) / statistics.median(costs[plain])
            note = "" if name == plain else f"{times:.2f} × {NO_LIMITS}"
            figures.append(Figure("limits", f"{name}, CPU in Postgres", "µs/job", costs[name], note))
    return figures
