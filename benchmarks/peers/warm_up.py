"""Before a run with producers and workers: connections are made, statements prepared, and all is quiet."""

from __future__ import annotations

import asyncio

from benchmarks.peers.crew import Runner, Watch
from benchmarks.peers.stores import Store

START_SECONDS = 30
_JOBS = 80
_PRODUCERS = 8
# One process may take all jobs of a round; that every one has run some is worth a few, not more.
_ROUNDS = 4
_ROUND_SECONDS = 20
_QUIET_SECONDS = 1.0


async def warm_up(runner: Runner, store: Store, watch: Watch, processes: int) -> None:
    """Return when every worker process is up and, within a few rounds of jobs, has run some of them."""
    await watch.until(lambda: watch.connected >= processes, START_SECONDS, "a worker process is not up")
    watch.let_loose()
    for _ in range(_ROUNDS):
        await asyncio.sleep(_QUIET_SECONDS)
        all_jobs = watch.hits + _PRODUCERS + _JOBS
        await runner.run(store, "produce", _JOBS, _PRODUCERS, 0)
        if not await runner.finish(store, watch, all_jobs, _ROUND_SECONDS):
            raise watch.failure(f"{all_jobs - watch.hits} jobs of the warm-up have not started")
        if watch.with_hits >= processes:
            break
    await asyncio.sleep(_QUIET_SECONDS)
