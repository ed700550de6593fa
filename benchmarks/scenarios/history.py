"""A drain beside ten million finished jobs, in turn with one beside none: history must cost nothing."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.finished import fill_finished
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

FINISHED = 10_000_000
# Three times as many as in other drains, to show a difference of two percent.
JOBS = 60_000
PLAIN = "plain"
BESIDE = f"beside {FINISHED:,} finished"
# Days within the default retention, so that no server deletes them during the run.
DAYS_AGO = (1, 2, 3, 4, 5, 6)
COST = f"{BESIDE}, Postgres' CPU"


async def measure(stand: Stand) -> list[Figure]:
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(stand.database())
        full = await stack.enter_async_context(stand.database())
        await fill_finished(full, stand.sized(FINISHED), days_ago=DAYS_AGO)
        await stand.settle(full)
        outcomes = await in_turn(
            stand, {PLAIN: partial(_run, stand, plain), BESIDE: partial(_run, stand, full)}
        )
    plains, besides = outcomes[PLAIN], outcomes[BESIDE]
    rate = statistics.median(run.rate for run in plains)
    figures = []
    for name, runs in outcomes.items():
        rates = [run.rate for run in runs]
        ratio = "" if name == PLAIN else f"{statistics.median(rates) / rate:.2f} × {PLAIN}"
        figures.append(Figure("history", f"drain of {JOBS:,}, {name}", "jobs/s", rates, ratio))
    if all("Postgres" in run.cpu for run in (*plains, *besides)):
        for name, runs in outcomes.items():
            used = [run.cpu["Postgres"] for run in runs]
            figures.append(Figure("history", f"{name}, CPU in Postgres", "µs/job", used))
        ratios = [
            beside.cpu["Postgres"] / plain.cpu["Postgres"]
            for plain, beside in zip(plains, besides, strict=True)
        ]
        figures.append(Figure("history", COST, "× plain", ratios))
    return figures


async def _run(stand: Stand, dsn: str) -> Drained:
    jobs = stand.sized(JOBS)
    await fill(dsn, jobs)
    await stand.settle(dsn)
    async with stand.pulsed(dsn) as server:
        return await drain(stand, dsn, [server], [TOPIC], jobs)
