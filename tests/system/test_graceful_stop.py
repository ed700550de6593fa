"""SIGTERM to a worker, and to pulsed under load. `faults/` has that to everything at once."""

import signal

import pulse
from tests.system.journal import started_after_completion
from tests.system.producer import producing
from tests.system.stage import STEADY, Stage, all_completed, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable


async def test_worker_finishes_running_jobs_and_releases_the_rest(stage: Stage, table: JobsTable) -> None:
    server = await stage.pulsed()
    gate = stage.gate("leaving")
    leaving = await stage.worker(server.address, "gated", "work", concurrency=2)
    async with pulse.Pulse(server.address) as p:
        quick = await p.enqueue_many("work", [Errand("quick")] * 60)  # after these it prefetches
        await all_completed(table, quick)
        running = await p.enqueue_many("gated", [Errand(gate=gate)] * 2)
        for handle in running:
            await stage.started(handle.id)
        queued = await p.enqueue_many("work", [Errand("queued")] * 5)
        await table.wait_for_count(7, f"locked_by = '{leaving.name}'")
        leaving.signal(signal.SIGTERM)
        await table.wait_for_count(5, "status = 'RETRYING' AND attempts = 0 AND queued")
        staying = await stage.worker(server.address, "gated", "work")
        elsewhere = [await finished(p, handle.id) for handle in queued]
        assert leaving.is_running
        stage.open(gate)
        assert await leaving.ended() == 0
        here = [await p.get_job(handle.id) for handle in running]
    assert {(job.status, job.attempts, job.worker_id) for job in here} == {("COMPLETED", 1, leaving.name)}
    assert {(job.status, job.attempts, job.worker_id) for job in elsewhere} == {
        ("COMPLETED", 1, staying.name)
    }
    assert not any(job.history for job in (*here, *elsewhere))
    assert all(len(starts) == 1 for starts in stage.by_job([*running, *queued]).values())


async def test_restart_of_the_server_under_load_costs_no_attempt(stage: Stage, table: JobsTable) -> None:
    """The leases last a minute: a lost job would not be reaped before the test times out."""
    settings = STEADY | {"PULSE_LEASE_TTL": "60s", "PULSE_HEARTBEAT_INTERVAL": "1s"}
    server = await stage.pulsed(**settings)
    address = server.address
    await stage.worker(address, "work", "sync-work")
    await stage.worker(address, "work", "sync-work", concurrency=2)
    async with producing(address, max_attempts=2, pause_seconds=0.005) as producer:
        for _ in range(2):
            await producer.acknowledged(60)
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
            server = await stage.pulsed(address, **settings)
        await producer.acknowledged(60)
    await all_completed(table, producer.handles)
    assert await table.count("attempts <> 1 OR history IS NOT NULL") == 0
    assert all(len(starts) == 1 for starts in stage.by_job(producer.handles).values())
    assert not await started_after_completion(table, stage.executions())
