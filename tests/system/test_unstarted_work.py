"""Jobs that a worker has not started cost no attempt, and run on other workers."""

import time

import pulse
from tests.eventually import eventually
from tests.system.stage import STEADY, Stage, Worker, all_finished, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

CONVERGENCE_SECONDS = 2.0


async def warm(stage: Stage, p: pulse.Pulse, worker: Worker) -> None:
    """Return once the worker prefetches many jobs."""
    for _ in range(3):
        await stage.prefetches(p, worker)


async def test_killed_worker_costs_an_attempt_only_where_a_handler_had_started(
    stage: Stage, table: JobsTable
) -> None:
    """Its window is wide after quick jobs, and the jobs that wait in it have one attempt each."""
    server = await stage.pulsed()
    killed = await stage.worker(server.address, "gated", "work", concurrency=5)
    gate = stage.gate("slow")
    async with pulse.Pulse(server.address) as p:
        await warm(stage, p, killed)
        handles = await p.enqueue_many("gated", [Errand(gate=gate)] * 100, max_attempts=1)
        await eventually(lambda: sum(map(bool, stage.by_job(handles).values())) == 5, "five have started")
        killed.kill()
        started = {job_id for job_id, starts in stage.by_job(handles).items() if starts}
        stage.open(gate)
        await stage.worker(server.address, "gated", concurrency=20)
        await all_finished(table)
    dead = await table.connection.fetch("SELECT id FROM pulse.jobs WHERE status = 'DEAD_LETTERED'")
    assert {str(row["id"]) for row in dead} == started
    assert all(len(starts) == 1 for starts in stage.by_job(handles).values())


async def test_jobs_behind_slow_handlers_go_to_another_worker(stage: Stage) -> None:
    server = await stage.pulsed(**STEADY)
    slow = await stage.worker(server.address, "gated", "work", concurrency=2)
    gate = stage.gate("slow")
    async with pulse.Pulse(server.address) as p:
        await warm(stage, p, slow)
        handles = await p.enqueue_many("gated", [Errand(gate=gate)] * 30)
        await eventually(lambda: sum(map(bool, stage.by_job(handles).values())) == 2, "two have started")
        other = await stage.worker(server.address, "gated", concurrency=28)
        await eventually(lambda: all(stage.by_job(handles).values()), "all have started")
        stage.open(gate)
        jobs = [await finished(p, handle.id) for handle in handles]
    assert {job.attempts for job in jobs} == {1}
    pids = [starts[0].pid for starts in stage.by_job(handles).values()]
    assert (pids.count(slow.pid), pids.count(other.pid)) == (2, 28)


async def test_no_handler_of_a_paused_topic_starts_later_than_the_convergence(
    stage: Stage, table: JobsTable
) -> None:
    """The window is wide, the handlers are slow now, and the pause goes through another server."""
    server, other = await stage.pulsed(), await stage.pulsed()
    worker = await stage.worker(server.address, "naps=work", "work", concurrency=2)
    async with pulse.Pulse(server.address) as p, pulse.Pulse(other.address) as operator:
        await warm(stage, p, worker)
        handles = await p.enqueue_many("naps", [Errand(seconds=0.2)] * 100)
        await eventually(lambda: any(stage.by_job(handles).values()), "one has started")
        await operator.pause(topic="naps")
        acknowledged_at = time.time()

        async def nothing_runs() -> bool:
            return not await table.count("status = 'RUNNING'")

        await eventually(nothing_runs, "the started jobs are done, and the rest is released")
        waiting = await table.count("topic = 'naps' AND status IN ('PENDING', 'RETRYING') AND attempts = 0")
        starts = [start.at for runs in stage.by_job(handles).values() for start in runs]
        assert waiting == len(handles) - len(starts)
        assert max(starts) < acknowledged_at + CONVERGENCE_SECONDS


async def test_result_of_a_handler_that_ended_while_the_server_was_away_is_taken_when_it_is_back(
    stage: Stage, table: JobsTable
) -> None:
    server = await stage.pulsed()
    gate = stage.gate("work")
    worker = await stage.worker(server.address, "gated")
    async with pulse.Pulse(server.address) as p:
        handle = await p.enqueue("gated", Errand(gate=gate))
        await stage.started(handle.id)
        server.kill()
        stage.open(gate)
        await stage.wrote(handle.id, "end")

        async def leases_have_ended() -> int:
            return await table.count("status = 'RUNNING' AND lease_until < now() - interval '3 s'")

        await eventually(leases_have_ended, "the lease ended long ago")
        # It reaps nothing for one lease of its own: on a busy machine the worker is back after seconds.
        await stage.pulsed(server.address, PULSE_LEASE_TTL="60s")
        job = await finished(p, handle.id)
    assert (job.status, job.attempts, job.worker_id) == ("COMPLETED", 1, worker.name)
    assert len(stage.executions(handle.id)) == 1
