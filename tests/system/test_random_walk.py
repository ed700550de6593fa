"""Two replicas, three workers and an application, under random misfortunes; then the books are checked.

A failure prints its seed. PULSE_WALK_SEED=… draws the same misfortunes, PULSE_WALK_SECONDS=… more of them.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import asyncpg

import pulse
from tests.system.journal import Execution, started_after_completion
from tests.system.misfortunes import Freeze, Misfortunes
from tests.system.producer import Producer, producing
from tests.system.stage import Stage, eventually, free_port
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

TOPICS = ["work", "sync-work", "fail-once", "retry-soon", "discard", "block"]
# Enough that no job runs out of attempts by bad luck: then only what a handler said can have ended it badly.
MAX_ATTEMPTS = 12


async def test_no_job_is_lost_doubled_or_started_after_its_end(stage: Stage, table: JobsTable) -> None:
    seed = int(os.environ.get("PULSE_WALK_SEED") or random.SystemRandom().randrange(2**32))
    seconds = float(os.environ.get("PULSE_WALK_SECONDS") or 10)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    misfortunes = Misfortunes(stage, seed, seconds)
    troubles = [
        *(misfortunes.befall_replica(address) for address in addresses),
        *(misfortunes.befall_worker(number, addresses, TOPICS) for number in range(3)),
    ]
    try:
        async with producing(
            *addresses, choose=_chooser(seed), max_attempts=MAX_ATTEMPTS, pause_seconds=0.02
        ) as producer:
            cancelling = asyncio.create_task(_cancel_some(producer, addresses, seed))
            await asyncio.gather(*troubles)
            producer.stop()
            cancelled = await cancelling
        await eventually(lambda: _nothing_left(table), "all jobs are finished", 60)
        rows = await table.connection.fetch("SELECT * FROM pulse.jobs")
        _check_ends(stage, producer, cancelled, rows)
        late = await started_after_completion(table, stage.executions())
        assert not _unexplained(late, misfortunes.freezes)
        _check_workers(stage)
    except BaseException:
        print(f"The seed was {seed}: PULSE_WALK_SEED={seed} draws the same misfortunes.")
        print("\n".join(misfortunes.told))
        raise


# ---------------------------------------------------------------- what the application does


def _chooser(seed: int) -> Callable[[int], tuple[str, Errand]]:
    draw = random.Random(f"{seed} jobs")

    def choose(number: int) -> tuple[str, Errand]:
        (topic,) = draw.choices(TOPICS, weights=[60, 20, 6, 6, 4, 1])
        seconds = 0.3 if topic == "block" else draw.choice([0.0, 0.0, 0.01, 0.05, 0.2])
        return topic, Errand(str(number), seconds)

    return choose


async def _cancel_some(producer: Producer, addresses: list[str], seed: int) -> dict[str, bool]:
    """Cancel a job now and then. Returns for each whether the server agreed."""
    draw = random.Random(f"{seed} cancels")
    answers: dict[str, bool] = {}
    while not producer.is_over:
        await asyncio.sleep(0.2)
        if not producer.handles:
            continue
        job_id = draw.choice(producer.handles[-30:]).id
        async with pulse.Pulse(draw.choice(addresses), timeout=timedelta(seconds=40)) as p:
            try:
                answers[job_id] = (await p.cancel(job_id)).status is pulse.JobStatus.CANCELED
            except pulse.InvalidTransition:
                answers[job_id] = False
    return answers


async def _nothing_left(table: JobsTable) -> bool:
    # Time flies: a job whose leases lapsed four times would wait for 16 s before it runs again.
    await table.connection.execute(
        "UPDATE pulse.jobs SET next_run_at = now()"
        " WHERE status = 'RETRYING' AND NOT ready AND next_run_at > now()"
    )
    return not await table.count("finished_at IS NULL")


# ---------------------------------------------------------------- what has to be true


def _check_ends(
    stage: Stage, producer: Producer, cancelled: dict[str, bool], rows: list[asyncpg.Record]
) -> None:
    """Each acknowledged job is there once, and ended as its handler and its owner wanted it."""
    names = {process.pid: process.name for process in stage.processes}
    starts = Counter((start.job_id, start.attempt, names[start.pid]) for start in stage.executions())
    ids = [handle.id for handle in producer.handles]
    assert len(ids) == len(set(ids)) == len(rows)
    assert set(ids) == {str(row["id"]) for row in rows}
    for row in rows:
        job_id = str(row["id"])
        # The attempt that ended it ran, once, and where the row says. (An attempt that was given back may
        # bear the number of a later one, so other workers may have started one of the same number.)
        ended_by = starts[job_id, row["attempts"], row["finished_by"]]
        expected = "DEAD_LETTERED" if row["topic"] == "discard" else "COMPLETED"
        if cancelled.get(job_id):
            assert row["status"] == "CANCELED", row
        else:
            assert (row["status"], ended_by) == (expected, 1), row
        assert row["attempts"] <= row["max_attempts"], row


def _unexplained(late: list[Execution], freezes: list[Freeze]) -> list[Execution]:
    """Leave out what no worker can help: one that is frozen between its last look at the lease and the start.

    Handlers start one after the other, so that can befall one execution in each freeze, the first after it.
    """
    explained = set()
    for freeze in freezes:
        of_worker = [start for start in late if start.pid == freeze.pid and start.at >= freeze.end]
        if of_worker and of_worker[0].at < freeze.end + 0.05:
            explained.add(of_worker[0])
    return [start for start in late if start not in explained]


def _check_workers(stage: Stage) -> None:
    for process in stage.processes:
        for sign in ("never retrieved", "unexpected way", "was destroyed but it is pending"):
            assert sign not in process.log, process.log
