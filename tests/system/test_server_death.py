"""pulsed killed and restarted under a running worker and a producing application."""

from datetime import datetime
from functools import partial

import pulse
from tests.eventually import eventually
from tests.system.journal import started_after_completion
from tests.system.producer import producing
from tests.system.stage import STEADY, Stage, all_completed
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

KILLS = 4


async def is_extended(table: JobsTable, job_id: str, lease: datetime) -> bool:
    return bool((await table.row(job_id))["lease_until"] > lease)


async def test_kills_of_the_server_lose_nothing_and_repeat_nothing(stage: Stage, table: JobsTable) -> None:
    """More kills than a job has attempts. Every handler here succeeds, so every job must complete."""
    server = await stage.pulsed(**STEADY)
    address = server.address
    worker = await stage.worker(address, "work", "sync-work", "gated")
    gate = stage.gate("held")
    async with pulse.Pulse(address) as p, producing(address, max_attempts=3) as producer:
        held = await p.enqueue("gated", Errand(gate=gate), max_attempts=3)
        await stage.started(held.id)
        for _ in range(KILLS):
            await producer.acknowledged(20)
            server.kill()
            lease = (await table.row(held.id))["lease_until"]
            server = await stage.pulsed(address, **STEADY)
            await eventually(
                partial(is_extended, table, held.id, lease), "the worker beats the held job again"
            )
        await producer.acknowledged(20)
        stage.open(gate)
        await stage.wrote(held.id, "end")
    await all_completed(table, [held, *producer.handles])
    row = await table.row(held.id)
    assert (row["attempts"], row["finished_by"], row["history"]) == (1, worker.name, None)
    # Jobs lost between claim and delivery cost an attempt, but started no handler. No lease of a delivered
    # job was shorter than an outage. So each ran once.
    doubled = {
        job: starts for job, starts in stage.by_job([held, *producer.handles]).items() if len(starts) != 1
    }
    assert not doubled
    assert not await started_after_completion(table, stage.executions())
    assert await table.count() == len(producer.handles) + 1
    assert worker.is_running
