"""Schedules are fired by hand, and their jobs are listed."""

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.schedule_calls import fire, get, make

TAKEN = grpc.StatusCode.ALREADY_EXISTS
SCHEDULED = "schedule_id IS NOT NULL"


async def test_fire_by_hand_reaches_a_worker_and_leaves_the_schedule_alone(server: ServerUnderTest) -> None:
    made = await make(server, payload=b"{}", priority=2)
    async with server.worker() as worker:
        job_id = await fire(server, made.schedule_id)
        job = await worker.take_one()
        assert (job.job_id, job.payload, job.priority) == (job_id, b"{}", 2)
        await worker.complete(job)

    assert await get(server, made.schedule_id) == made


async def test_fire_that_is_repeated_with_its_id_fires_once(server: ServerUnderTest) -> None:
    made = await make(server)
    job_id = "0190f3a2-7b1c-7def-8123-456789abcdef"

    assert [await fire(server, made.schedule_id, job_id) for _ in range(3)] == [job_id] * 3
    assert await server.table.count(SCHEDULED) == 1


async def test_fire_under_the_id_of_another_job_is_refused(server: ServerUnderTest) -> None:
    """An OK would name a job that the schedule never made."""
    made, other = await make(server), await make(server)
    for job_id in (await server.submit(), await fire(server, other.schedule_id)):
        request = pb.FireScheduleRequest(schedule_id=made.schedule_id, job_id=job_id)
        error = await refusal_of(server.stub.FireSchedule(request))
        assert error.code() is TAKEN
        assert job_id in str(error.details())
    assert await server.table.count(f"schedule_id = '{made.schedule_id}'") == 0


@pytest.mark.parametrize("method", ["ListScheduleJobs", "ListScheduleFires"])
async def test_what_a_schedule_made_is_listed_newest_first_by_pages(
    server: ServerUnderTest, method: str
) -> None:
    made, other = await make(server), await make(server)
    newest_first = [await fire(server, made.schedule_id) for _ in range(7)][::-1]
    await fire(server, other.schedule_id)
    request_type = getattr(pb, f"{method}Request")
    seen, token = [], ""
    while True:
        request = request_type(schedule_id=made.schedule_id, limit=3, page_token=token)
        page = await getattr(server.stub, method)(request)
        entries = page.jobs if method == "ListScheduleJobs" else page.fires
        seen += [entry.job_id for entry in entries]
        if not (token := page.next_page_token):
            break
        await fire(server, made.schedule_id)

    assert seen == newest_first
    everything = await getattr(server.stub, method)(request_type(schedule_id=made.schedule_id))
    assert len(everything.jobs if method == "ListScheduleJobs" else everything.fires) == 9


async def test_dead_letter_of_a_schedule_is_listed_with_what_it_died_of(server: ServerUnderTest) -> None:
    made = await make(server, max_attempts=1)
    job_id = await fire(server, made.schedule_id)
    async with server.worker(capacity=1) as worker:
        await worker.fail(await worker.take_one(), "boom")
    (listed,) = (
        await server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=made.schedule_id))
    ).jobs
    job = (await server.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job

    assert (listed.status, listed.last_error) == ("DEAD_LETTERED", "boom")
    assert listed.error_group == job.error_group != "none"


async def test_fires_have_their_time_and_status(server: ServerUnderTest) -> None:
    made = await make(server)
    done, waiting = await fire(server, made.schedule_id), await fire(server, made.schedule_id)
    async with server.worker(capacity=1) as worker:
        await worker.complete(await worker.take_one())
        listed = await server.stub.ListScheduleFires(
            pb.ListScheduleFiresRequest(schedule_id=made.schedule_id)
        )
    jobs = await server.stub.ListScheduleJobs(pb.ListScheduleJobsRequest(schedule_id=made.schedule_id))

    assert [fired.job_id for fired in listed.fires] == [waiting, done]
    assert listed.fires[1].status == "COMPLETED"
    assert [fired.fired_at for fired in listed.fires] == [job.submitted_at for job in jobs.jobs]


async def test_pages_of_heavy_entries_fit_into_what_a_default_client_receives(
    server: ServerUnderTest,
) -> None:
    heavy = {"k": "x" * 16_000}
    schedules = [(await make(server, metadata=heavy)).schedule_id for _ in range(300)]
    jobs = [await fire(server, schedules[0]) for _ in range(300)]

    seen, token = [], ""
    while True:
        page = await server.stub.ListSchedules(pb.ListSchedulesRequest(limit=1000, page_token=token))
        seen += [view.schedule_id for view in page.schedules]
        if not (token := page.next_page_token):
            break
    assert seen == schedules

    seen = []
    while True:
        request = pb.ListScheduleJobsRequest(schedule_id=schedules[0], limit=1000, page_token=token)
        listed = await server.stub.ListScheduleJobs(request)
        seen += [job.job_id for job in listed.jobs]
        if not (token := listed.next_page_token):
            break
    assert seen == jobs[::-1]
