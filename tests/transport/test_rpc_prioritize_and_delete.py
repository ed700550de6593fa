"""Changing priorities and deleting finished jobs, over real gRPC and Postgres."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.test_rpc_many_jobs import add_dead_letters


async def test_job_with_raised_priority_is_claimed_first(server: ServerUnderTest) -> None:
    first, second, third = await server.submit_many(3)
    response = await server.stub.PrioritizeJob(pb.PrioritizeJobRequest(job_id=third, priority=9))
    await server.stub.PrioritizeJob(pb.PrioritizeJobRequest(job_id=first, priority=-(2**31)))

    assert (response.job.job_id, response.job.priority) == (third, 9)
    async with server.worker(capacity=3) as worker:
        taken = await worker.take(3)
    assert [(job.job_id, job.priority) for job in taken] == [(third, 9), (second, 0), (first, -(2**31))]


async def test_running_job_keeps_running_when_its_priority_changes(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        response = await server.stub.PrioritizeJob(pb.PrioritizeJobRequest(job_id=job_id, priority=5))
        assert (response.job.status, response.job.priority) == ("RUNNING", 5)
        await worker.complete(job)
    assert (await server.get(job_id)).status == "COMPLETED"


async def test_finished_job_is_not_prioritized(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))

    with pytest.raises(grpc.aio.AioRpcError, match=f"Job {job_id} is CANCELED") as refused:
        await server.stub.PrioritizeJob(pb.PrioritizeJobRequest(job_id=job_id, priority=1))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_many_are_prioritized_batch_by_batch(server: ServerUnderTest) -> None:
    await server.submit_many(5)
    await server.submit_many(2, "sms")
    wanted = pb.JobFilter(topic="mail")

    step = await server.stub.PrioritizeJobs(pb.PrioritizeJobsRequest(filter=wanted, priority=4, limit=3))
    rest = await server.stub.PrioritizeJobs(
        pb.PrioritizeJobsRequest(filter=wanted, priority=4, limit=3, page_token=step.next_page_token)
    )

    assert (step.prioritized, rest.prioritized, rest.next_page_token) == (3, 2, "")
    assert await server.table.count("priority = 4 AND topic = 'mail'") == 5
    assert await server.table.count("priority = 4") == 5


async def test_finished_job_is_deleted_and_its_key_is_free(server: ServerUnderTest) -> None:
    job_id = await server.submit(payload=b"a", idempotency_key="k")
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))

    await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))

    for verb, request in (
        (server.stub.GetJob, pb.GetJobRequest),
        (server.stub.DeleteJob, pb.DeleteJobRequest),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"There is no job {job_id}") as refused:
            await verb(request(job_id=job_id))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert await server.submit(payload=b"b", idempotency_key="k") != job_id


async def test_job_that_is_not_finished_has_to_be_canceled_first(server: ServerUnderTest) -> None:
    job_id = await server.submit()

    with pytest.raises(grpc.aio.AioRpcError, match=r"is PENDING: .* Cancel it first\.") as refused:
        await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await server.get(job_id)).status == "PENDING"


async def test_many_are_deleted_batch_by_batch(server: ServerUnderTest) -> None:
    await add_dead_letters(server, 5)
    await add_dead_letters(server, 2, "sms")
    wanted = pb.JobFilter(topic="mail", status="DEAD_LETTERED")

    step = await server.stub.DeleteJobs(pb.DeleteJobsRequest(filter=wanted, limit=3))
    rest = await server.stub.DeleteJobs(
        pb.DeleteJobsRequest(filter=wanted, limit=3, page_token=step.next_page_token)
    )

    assert (step.deleted, rest.deleted, rest.next_page_token) == (3, 2, "")
    assert await server.table.count() == 2


async def test_occurrence_whose_job_was_deleted_does_not_fire_again(server: ServerUnderTest) -> None:
    created = await server.stub.CreateSchedule(
        pb.CreateScheduleRequest(topic="mail", every=Duration(seconds=3600))
    )
    await server.table.connection.execute(
        "UPDATE pulse.schedules SET next_run_at = $1", datetime.now(UTC) - timedelta(minutes=1)
    )
    server.app.schedules.scheduler.loop.nudge()
    await server.table.wait_for_count(1, "schedule_id IS NOT NULL")
    asked = pb.ListScheduleFiresRequest(schedule_id=created.schedule_id)
    (fire,) = (await server.stub.ListScheduleFires(asked)).fires
    async with server.worker() as worker:
        await worker.complete(await worker.take_one())

    await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=fire.job_id))
    server.app.schedules.scheduler.loop.nudge()
    await server.app.schedules.scheduler.loop.wait_for_ticks(2)

    assert await server.table.count() == 0
    assert list((await server.stub.ListScheduleFires(asked)).fires) == []
