"""The same drain over a large table. Its speed must not change.

Each drain is stopped at 20,000 jobs, the plain one as well, which has half as many again: else it alone would
be timed over its last, smaller batches.
"""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure
from benchmarks.filling import fill, topics
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand

JOBS = 20_000
READY = 30_000
DEEP = 1_000_000


@dataclass(frozen=True, slots=True)
class Backlog:
    ready: int
    delayed: int = 0
    topics: int = 1


BACKLOGS = {
    "plain": Backlog(READY),
    "out of a backlog of 1,000,000": Backlog(DEEP),
    "behind 1,000,000 delayed of higher priority": Backlog(READY, delayed=DEEP),
    "out of 1,000,000 in 5 topics": Backlog(DEEP, topics=5),
}


async def measure(stand: Stand) -> list[Figure]:
    async with AsyncExitStack() as stack:
        runs = {}
        for name, backlog in BACKLOGS.items():
            dsn = await stack.enter_async_context(stand.database())
            if backlog.delayed:
                await fill(dsn, stand.sized(backlog.delayed), priority=10, delayed=True)
            if backlog.ready == DEEP:
                await fill(dsn, stand.sized(DEEP), into=topics(backlog.topics))
            runs[name] = partial(_run, stand, dsn, backlog)
        outcomes = await in_turn(stand, runs)
    plain = statistics.median(run.rate for run in outcomes["plain"])
    figures = []
    for name, results in outcomes.items():
        rates = [run.rate for run in results]
        ratio = "" if name == "plain" else f"{statistics.median(rates) / plain:.2f} × plain"
        figures.append(Figure("deep", f"drain of {JOBS:,}, {name}", "jobs/s", rates, ratio))
    return figures


async def _run(stand: Stand, dsn: str, backlog: Backlog) -> Drained:
    names = topics(backlog.topics)
    # Put back the jobs that the run before took. Jobs left over in a small backlog count as well.
    await fill(dsn, stand.sized(READY if backlog.ready == READY else JOBS), into=names)
    await stand.settle(dsn)
    async with stand.pulsed(dsn) as server:
        return await drain(stand, dsn, [server], names, stand.sized(JOBS), is_all=False)
