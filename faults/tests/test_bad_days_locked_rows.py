"""Another session locks the rows of single jobs for several leases: only those jobs wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

import pulse
from faults.bad_days.scale import PATIENT, SEVERAL_LEASES_SECONDS
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.base import tuning
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.system.stage import Stage, all_completed
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

WORKERS = 3
OF_EACH = 10
NO_JOB = "0190f3a0-0000-7000-8000-00000000dead"


@asynccontextmanager
async def locked(table: JobsTable, *jobs: pulse.JobHandle) -> AsyncIterator[None]:
    """Lock the rows of these jobs in another session for the length of the block."""
    async with table.connection.transaction():
        ids = [job.id for job in jobs]
        await table.connection.execute("SELECT FROM pulse.jobs WHERE id = ANY($1::uuid[]) FOR UPDATE", ids)
        yield


async def completed(table: JobsTable, jobs: Sequence[pulse.JobHandle]) -> None:
    """Return once these jobs are completed."""
    ids = [job.id for job in jobs]

    async def are_completed() -> bool:
        statement = "SELECT count(*) FROM pulse.all_jobs WHERE id = ANY($1::uuid[]) AND status = 'COMPLETED'"
        return await table.connection.fetchval(statement, ids) == len(ids)

    await eventually(are_completed, "they are completed")


async def test_locked_row_costs_no_job_of_any_worker_on_any_server(stage: Stage, table: JobsTable) -> None:
    """One statement extends the leases of all jobs of a server. The other server works, and reaps."""
    hasty = {"program": "faults.bad_days.hasty_pulsed", **PATIENT}
    first, second = stage.start_pulsed(**hasty), stage.start_pulsed(**hasty)
    for server in (first, second):
        await stage.serving(server)
    gate = stage.gate("locked")
    for server, worker_id in ((first, "first-1"), (first, "first-2"), (second, "second")):
        await stage.worker(server.address, "gated", concurrency=OF_EACH, worker_id=worker_id)
    async with pulse.Pulse(first.address) as p:
        handles = await p.enqueue_many("gated", [Errand(gate=gate)] * WORKERS * OF_EACH)
        await eventually(lambda: len(stage.executions()) == len(handles), "all of them run")
        holders = {handle: (await table.row(handle.id))["locked_by"] for handle in handles}
        victim = next(handle for handle, worker_id in holders.items() if worker_id == "first-1")

        async with locked(table, victim):
            await asyncio.sleep(SEVERAL_LEASES_SECONDS)
            stage.open(gate)
            others = [handle for handle in handles if handle is not victim]
            await completed(table, others)
            assert (await table.row(victim.id))["status"] == "RUNNING"
        await all_completed(table, handles)
    assert await table.count("attempts <> 1 OR history IS NOT NULL") == 0
    assert {len(starts) for starts in stage.by_job(handles).values()} == {1}


async def test_results_of_other_jobs_are_taken_while_those_of_three_locked_ones_wait(
    stage: Stage, table: JobsTable
) -> None:
    """They are of one worker: it repeats all reports, and the server commits them together."""
    server = await stage.pulsed()
    gate = stage.gate("locked")
    await stage.worker(server.address, "gated", "work")
    async with pulse.Pulse(server.address) as p:
        waiting = await p.enqueue_many("gated", [Errand(gate=gate)] * 3)
        await eventually(lambda: len(stage.executions()) == len(waiting), "all of them run")

        async with locked(table, *waiting):
            stage.open(gate)
            for number in range(5):
                await completed(table, await p.enqueue_many("work", [Errand(str(number))] * 10))
            assert await table.count("status = 'RUNNING'") == len(waiting)
        await all_completed(table, waiting)
    assert await table.count("attempts <> 1 OR history IS NOT NULL") == 0


async def test_operator_actions_on_a_locked_job_delay_no_work(stage: Stage, table: JobsTable) -> None:
    server = await stage.pulsed()
    await stage.worker(server.address, "work")
    async with pulse.Pulse(server.address) as p, grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = PulseServiceStub(channel)
        victim = await p.enqueue("without-workers", Errand())

        async with locked(table, victim):
            calls = [
                call
                for _ in range(2 * tuning.HOT_CONNECTIONS)
                for call in (
                    stub.CancelJob(pb.CancelJobRequest(job_id=victim.id), timeout=PATIENCE_SECONDS),
                    stub.PrioritizeJob(
                        pb.PrioritizeJobRequest(job_id=victim.id, priority=7), timeout=PATIENCE_SECONDS
                    ),
                )
            ]
            answers = asyncio.gather(*map(_answer_of, calls))
            await completed(table, await p.enqueue_many("work", [Errand()] * 20))
            assert set(await answers) == {
                (
                    grpc.StatusCode.UNAVAILABLE,
                    f"Job {victim.id} is locked by another session of the database. Try again.",
                )
            }
        await p.cancel(victim.id)


async def test_action_on_many_jobs_names_how_many_are_locked(stage: Stage, table: JobsTable) -> None:
    server = await stage.pulsed()
    async with pulse.Pulse(server.address) as p:
        handles = await p.enqueue_many("later", [Errand()] * 5)

        async with locked(table, *handles[1:3]):
            batch = await p.cancel_batch(topic="later")
        assert (batch.changed, batch.locked, batch.next_cursor) == (3, 2, None)
        again = await p.cancel_batch(topic="later")
        assert (again.changed, again.locked) == (2, 0)


async def test_caller_with_absurd_deadlines_keeps_no_dead_worker_from_being_noticed(
    stage: Stage, table: JobsTable
) -> None:
    """The heartbeats of a user with the worker role must affect its own jobs only."""
    server = await stage.pulsed()
    gate = stage.gate("never")
    dead = await stage.worker(server.address, "gated")
    async with pulse.Pulse(server.address) as p, grpc.aio.insecure_channel(server.address) as channel:
        handle = await p.enqueue("gated", Errand(gate=gate))
        await stage.started(handle.id)
        hammering = [asyncio.create_task(_hammer(PulseServiceStub(channel))) for _ in range(8)]
        dead.kill()

        async def is_reaped() -> bool:
            return await table.count("history::text LIKE '%lease_expired%'") == 1

        try:
            await eventually(is_reaped, "the job of the dead worker is reaped")
        finally:
            for task in hammering:
                task.cancel()
            await asyncio.gather(*hammering, return_exceptions=True)


async def _hammer(stub: Any) -> None:
    """Send heartbeats with deadlines that expire before the call, while it waits, and during its answer."""
    claims = [pb.Claim(job_id=NO_JOB, attempt=attempt) for attempt in range(1, 2000)]
    request = pb.HeartbeatsRequest(worker_id="abuser", claims=claims)
    while True:
        for milliseconds in (1, 2, 3, 4, 5, 6, 10, 20, 40, 80):
            await _answer_of(stub.Heartbeats(request, timeout=milliseconds / 1000))


async def _answer_of(call: Any) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
