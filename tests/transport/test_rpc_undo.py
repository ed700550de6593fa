"""UndoAction, over real gRPC and Postgres."""

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import new_id
from tests.transport.pulse_server_under_test import ServerUnderTest

MAIL = pb.JobFilter(topic="mail")


async def test_batches_of_a_cancel_are_undone_batch_by_batch(server: ServerUnderTest) -> None:
    ids = await server.submit_many(5)
    action, token = new_id(), ""
    for _ in range(3):
        canceled = await server.stub.CancelJobs(
            pb.CancelJobsRequest(filter=MAIL, action_id=action, limit=2, page_token=token)
        )
        token = canceled.next_page_token
    assert canceled.action_id == action

    counted = await server.stub.UndoAction(pb.UndoActionRequest(action_id=action, dry_run=True))
    first = await server.stub.UndoAction(pb.UndoActionRequest(action_id=action, limit=3))
    rest = await server.stub.UndoAction(
        pb.UndoActionRequest(action_id=action, limit=3, page_token=first.next_page_token)
    )

    assert (counted.undone, counted.skipped) == (5, 0)
    assert (first.undone, rest.undone, rest.next_page_token) == (3, 2, "")
    statuses = [(await server.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job.status for job_id in ids]
    assert statuses == ["PENDING"] * 5


async def test_jobs_that_are_locked_or_whose_key_is_taken_are_counted_apart(server: ServerUnderTest) -> None:
    unique = pb.Unique(key="k", scope="live")
    free, locked = await server.submit_many(2)
    held = await server.submit("mail", unique=unique)
    action = new_id()
    await server.stub.CancelJobs(pb.CancelJobsRequest(filter=MAIL, action_id=action))
    await server.submit("mail", unique=unique)
    undo = pb.UndoActionRequest(action_id=action)

    counted = await server.stub.UndoAction(pb.UndoActionRequest(action_id=action, dry_run=True))
    assert (counted.undone, counted.skipped, counted.held) == (2, 1, 1)
    other = server.table.connection.another()
    async with other.transaction():
        await other.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)
        undone = await server.stub.UndoAction(undo)
    await other.close()
    again = await server.stub.UndoAction(undo)

    assert (undone.undone, undone.skipped, undone.held, undone.locked) == (1, 2, 1, 1)
    assert (again.undone, again.skipped, again.held, again.locked) == (1, 1, 1, 0)
    statuses = [(await server.get(job_id)).status for job_id in (free, locked, held)]
    assert statuses == ["PENDING", "PENDING", "CANCELED"]


async def test_action_that_changed_no_job_last_is_refused(server: ServerUnderTest) -> None:
    await server.submit_many(1)
    deleted = pb.DeleteJobsRequest(filter=pb.JobFilter(topic="mail", status="CANCELED"), action_id=new_id())
    await server.stub.CancelJobs(pb.CancelJobsRequest(filter=MAIL))
    await server.stub.DeleteJobs(deleted)

    with pytest.raises(grpc.aio.AioRpcError, match="A delete cannot be undone") as refused:
        await server.stub.UndoAction(pb.UndoActionRequest(action_id=deleted.action_id))

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("field", ["action_id", "page_token", "undo_id"])
async def test_id_that_is_none_is_refused(server: ServerUnderTest, field: str) -> None:
    fields = {"action_id": new_id(), field: "none"}
    with pytest.raises(grpc.aio.AioRpcError, match=r"_id|page_token") as refused:
        await server.stub.UndoAction(pb.UndoActionRequest(**fields))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
