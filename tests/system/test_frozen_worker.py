"""Workers that are frozen or cut off leave jobs alone that they have lost meanwhile."""

import signal

import grpc

import pulse
from faults.proxy import Way, proxy_to
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.eventually import eventually
from tests.system.journal import started_after_completion
from tests.system.stage import Stage, Worker, all_completed, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable


async def test_frozen_worker_has_lost_its_jobs(stage: Stage, table: JobsTable) -> None:
    """Its running handlers are stopped, its reports are refused, and its queued jobs are not started."""
    server = await stage.pulsed()
    gate = stage.gate("frozen")
    async with proxy_to(server.address) as proxy, pulse.Pulse(server.address) as p:
        frozen = await stage.worker(proxy.address, "gated", "patient", "work", concurrency=2)
        await stage.prefetches(p, frozen)
        running = [
            await p.enqueue("patient", Errand("for ever")),
            await p.enqueue("gated", Errand(gate=gate)),
        ]
        for handle in running:
            await stage.started(handle.id)
        await table.wait_for_count(2, f"locked_by = '{frozen.name}' AND delivered")
        queued = await p.enqueue_many("work", [Errand("queued")] * 3)
        await table.wait_for_count(5, f"locked_by = '{frozen.name}'")
        frozen.signal(signal.SIGSTOP)
        proxy.cut()  # so that the server sends it nothing more
        stage.open(
            gate
        )  # the frozen handler will find it open, end at once, and free a slot for the queued jobs
        other = await stage.worker(server.address, "gated", "patient", "work")
        jobs = [await finished(p, handle.id) for handle in (*running, *queued)]
        before = await table.everything()
        frozen.signal(signal.SIGCONT)
        canceled = await stage.wrote(running[0].id, "cancelled")
        assert (canceled.attempt, canceled.pid) == (1, frozen.pid)
        await _refuses_results_of(frozen, server.address, [job.id for job in jobs])
        assert await table.everything() == before
        # Its handlers start in the order of arrival: once it has run this, the queued ones had their turn.
        other.signal(signal.SIGTERM)
        assert await other.ended() == 0
        last = await p.enqueue("work", Errand("last"))
        await finished(p, last.id)
    assert [start.pid for start in stage.executions(last.id)] == [frozen.pid]
    for job, attempts in zip(jobs, (2, 2, 1, 1, 1), strict=True):
        assert (job.status, job.attempts, job.worker_id) == ("COMPLETED", attempts, other.name)
        assert job.last_error == "worker lease expired"
        starts = [(start.attempt, start.pid) for start in stage.executions(job.id)]
        assert starts == ([(1, frozen.pid), (2, other.pid)] if attempts == 2 else [(1, other.pid)])
    assert not await started_after_completion(table, stage.executions())


async def test_delivery_that_was_under_way_for_a_lease_is_not_started(stage: Stage, table: JobsTable) -> None:
    """The network delays the welcome, and the job behind it, until another worker has done the job."""
    server = await stage.pulsed()
    async with proxy_to(server.address) as proxy, pulse.Pulse(server.address) as p:
        held_back = proxy.freeze(Way.ANSWERS, after=b"StreamJobs")
        cut_off = stage.start_worker(proxy.address, "work", concurrency=1)
        await eventually(held_back.has_begun.is_set, "the worker asks for jobs")
        handle = await p.enqueue("work", Errand("held back"))
        await table.wait_until(handle.id, status="RUNNING", locked_by=cut_off.name)
        # It has more free slots, so the job is claimed for it.
        other = await stage.worker(server.address, "work", concurrency=10)
        job = await finished(p, handle.id)
        assert (job.attempts, job.worker_id) == (1, other.name)
        other.signal(signal.SIGTERM)
        assert await other.ended() == 0
        held_back.heal()
        last = await p.enqueue("work", Errand("last"))
        await all_completed(table, [handle, last])
    assert [start.pid for start in stage.executions(last.id)] == [cut_off.pid]
    assert [(start.attempt, start.pid) for start in stage.executions(handle.id)] == [(1, other.pid)]


async def _refuses_results_of(worker: Worker, address: str, job_ids: list[str]) -> None:
    """Send the report that the worker would send without knowing of the loss."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = PulseServiceStub(channel)
        for success in (True, False):
            results = [pb.Result(job_id=job_id, attempt=1, success=success) for job_id in job_ids]
            request = pb.ReportResultsRequest(worker_id=worker.name, results=results)
            refused = (await stub.ReportResults(request)).refused
            assert [item.refusal.code for item in refused] == [
                grpc.StatusCode.FAILED_PRECONDITION.value[0]
            ] * len(job_ids)
