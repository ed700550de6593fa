"""Claims of 20 jobs in a topic where 10,000 earlier jobs are running.

Each round stores 20 jobs, claims them and completes them, one statement after the other. Like a
server, it knows the time of the submit and claims from that floor on. The figure is the median of
the claims. A full look is a claim without a floor, as at a tick.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

from benchmarks.claiming import claim, complete, job_repo
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand
from pulse_server.base.ids import new_id
from pulse_server.dispatch.floors import MARGIN_SECONDS
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.rules import Level
from pulse_server.jobs.store import PostgresJobRepo

RUNNING = 10_000
BATCH = 20
ROUNDS = 200
NAME = f"a claim of {BATCH} behind {RUNNING:,} running jobs"
FULL_LOOK = f"a full look for {BATCH} behind {RUNNING:,} running jobs"
_WARM_UP_ROUNDS = 30
_CLAIMED_AT_ONCE = 1_000
_PAYLOAD = b'{"i": 12345, "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}'


async def measure(stand: Stand) -> list[Figure]:
    about = f"median of {stand.sized(ROUNDS)}"
    outcomes = await in_turn(stand, {name: partial(_run, stand, name == NAME) for name in (NAME, FULL_LOOK)})
    return [Figure("running", name, "ms", medians, about) for name, medians in outcomes.items()]


async def _run(stand: Stand, has_floor: bool) -> float:
    async with stand.database() as dsn:
        jobs = stand.sized(RUNNING)
        await fill(dsn, jobs)
        await stand.settle(dsn)
        async with job_repo(dsn) as repo:
            while jobs > 0:
                jobs -= len(await claim(repo, [TOPIC], min(jobs, _CLAIMED_AT_ONCE)))
            for _ in range(_WARM_UP_ROUNDS):
                await _round(repo, has_floor)
            with stand.background.watched():
                return statistics.median([await _round(repo, has_floor) for _ in range(stand.sized(ROUNDS))])


async def _round(repo: PostgresJobRepo, has_floor: bool) -> float:
    """Return the milliseconds that the claim took."""
    submitting = time.perf_counter()
    await repo.insert_jobs([NewJob(new_id(), TOPIC, _PAYLOAD, 0, 5) for _ in range(BATCH)])
    began = time.perf_counter()
    floor = Level(TOPIC, 0, began - submitting + MARGIN_SECONDS)
    claimed = await claim(repo, [TOPIC], BATCH, [floor] if has_floor else None)
    took = (time.perf_counter() - began) * 1000
    assert len(claimed) == BATCH
    await complete(repo, claimed)
    return took
