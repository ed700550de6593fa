"""Stages of transitions that operators make: cancel, retry and undo."""

from __future__ import annotations

from pulse.v1 import pulse_pb2 as pb
from tests.transport.arrows import arrow
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker


@arrow("PENDING", "CANCELED", "cancel_jobs")
async def canceled(server: ServerUnderTest, worker: StreamingWorker) -> str:
    job_id = await server.submit("unwanted")
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    return job_id


@arrow("RETRYING", "CANCELED", "cancel_jobs")
async def canceled_while_it_waits(server: ServerUnderTest, worker: StreamingWorker) -> None:
    job_id = await server.submit()
    await worker.fail(await worker.take_one(), after=3600 * SECOND)
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))


@arrow("RUNNING", "CANCELED", "cancel_jobs")
async def canceled_while_it_runs(server: ServerUnderTest, worker: StreamingWorker) -> None:
    job_id = await server.submit()
    await worker.take_one()
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))


@arrow("DEAD_LETTERED", "PENDING", "retry_jobs")
async def retried(server: ServerUnderTest, worker: StreamingWorker) -> None:
    job_id = await server.submit()
    job = await worker.take_one()
    await worker.fail(job, discard=True)
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))


@arrow("CANCELED", "PENDING", "retry_jobs")
async def retried_after_a_cancel(server: ServerUnderTest, worker: StreamingWorker) -> None:
    job_id = await canceled(server, worker)
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))


async def undo(server: ServerUnderTest) -> None:
    """Undo the last action on the only job."""
    action = await server.table.connection.fetchval("SELECT undo ->> 'action' FROM pulse.jobs")
    await server.stub.UndoAction(pb.UndoActionRequest(action_id=action))


@arrow("CANCELED", "PENDING", "undo_jobs")
async def cancel_undone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await canceled(server, worker)
    await undo(server)


@arrow("CANCELED", "RETRYING", "undo_jobs")
async def cancel_undone_while_it_waits(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await canceled_while_it_waits(server, worker)
    await undo(server)


@arrow("PENDING", "DEAD_LETTERED", "undo_jobs")
async def retry_undone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    job_id = await server.submit()
    await worker.fail(await worker.take_one(), discard=True)
    await server.stub.PauseDispatch(pb.PauseDispatchRequest())
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))
    await undo(server)


@arrow("PENDING", "CANCELED", "undo_jobs")
async def retry_after_a_cancel_undone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await retried_after_a_cancel(server, worker)
    await undo(server)
