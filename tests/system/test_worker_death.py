"""Killed workers: their jobs run elsewhere, and a job that kills its workers is dead-lettered."""

import asyncio
import functools

import pulse
from tests.eventually import eventually
from tests.system.stage import Stage, Worker, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable


async def test_job_of_a_killed_worker_is_recovered_by_another(stage: Stage, table: JobsTable) -> None:
    server = await stage.pulsed()
    killed = await stage.worker(server.address, "patient")
    async with pulse.Pulse(server.address) as p:
        handle = await p.enqueue("patient", Errand("mid-job"))
        await table.wait_until(handle.id, delivered=True)
        killed.kill()
        other = await stage.worker(server.address, "patient")
        job = await finished(p, handle.id)
    assert (job.status, job.attempts, job.worker_id) == ("COMPLETED", 2, other.name)
    assert job.last_error == "worker lease expired"
    (lost,) = job.history
    assert (lost.attempt, lost.worker_id, lost.outcome) == (1, killed.name, "lease_expired")
    assert [(start.attempt, start.pid) for start in stage.executions(handle.id)] == [
        (1, killed.pid),
        (2, other.pid),
    ]


async def test_job_that_kills_its_workers_ends_in_the_dead_letters(stage: Stage) -> None:
    """After its last attempt, not before, whether or not the next worker has the same name.

    If the first attempt kills its worker at once it is returned, once: its start was not recorded.
    """
    server = await stage.pulsed()
    cases = [(1, ""), (2, ""), (1, "pod-0"), (2, "pod-1")]
    async with pulse.Pulse(server.address) as p:
        supervisors = []
        handles = []
        for attempts, worker_id in cases:
            topic = f"die-{attempts}-{worker_id}"
            handles.append(await p.enqueue(topic, max_attempts=attempts))
            supervising = _keep_alive(stage, server.address, f"{topic}=die", worker_id)
            supervisors.append(asyncio.create_task(supervising))
        try:
            jobs = [await finished(p, handle.id) for handle in handles]
        finally:
            for supervisor in supervisors:
                supervisor.cancel()
    for (attempts, _), job in zip(cases, jobs, strict=True):
        assert (job.status, job.attempts) == ("DEAD_LETTERED", attempts)
        assert job.last_error == "worker lease expired"
        starts = [start.attempt for start in stage.executions(job.id)]
        assert starts == {1: [1], 2: [1, 1, 2]}[attempts]
        assert [(past.attempt, past.outcome) for past in job.history] == [
            (start, "lease_expired") for start in starts
        ]


async def _keep_alive(stage: Stage, address: str, topic: str, worker_id: str) -> None:
    """Run a worker, and restart it whenever it dies, as an init system does."""
    while True:
        worker = stage.start_worker(address, topic, worker_id=worker_id)
        await eventually(functools.partial(_has_died, worker), f"{worker.name} dies", patience_seconds=60)


def _has_died(worker: Worker) -> bool:
    return not worker.is_running


async def test_handler_that_ends_its_process_costs_no_other_job(stage: Stage, table: JobsTable) -> None:
    """Jobs that ran beside it run again in the next process, and those behind it run. It had one attempt, and
    is dead-lettered."""
    server = await stage.pulsed()
    ended = await stage.worker(server.address, "gated", "die", concurrency=4)
    gate = stage.gate("many")
    async with pulse.Pulse(server.address) as p:
        handles = await p.enqueue_many("gated", [Errand(str(number), gate=gate) for number in range(3)])
        await table.wait_for_count(3, "delivered")
        deadly = await p.enqueue("die", max_attempts=1)
        assert await ended.ended() == 70
        handles += await p.enqueue_many("gated", [Errand(str(number), gate=gate) for number in range(9)])
        stage.open(gate)
        await stage.worker(server.address, "gated", "die", concurrency=4, worker_id=ended.name)
        jobs = [await finished(p, handle.id) for handle in handles]
        dead = await finished(p, deadly.id)
    assert {job.status for job in jobs} == {pulse.JobStatus.COMPLETED}
    assert [job.attempts for job in jobs] == [2] * 3 + [1] * 9
    assert (dead.status, dead.attempts, dead.last_error) == ("DEAD_LETTERED", 1, "worker lease expired")
    assert len(stage.executions(deadly.id)) == 1
