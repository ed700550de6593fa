"""What docs/reference/rpcs.md says that a call is refused for, it is refused for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tools.rpc_notes import NOTES

UNKNOWN_ID = "01a1dfd2-d01d-779d-9031-31efcdcc417d"
JOBS = {
    "GetJob": pb.GetJobRequest,
    "CancelJob": pb.CancelJobRequest,
    "RetryJob": pb.RetryJobRequest,
    "PrioritizeJob": pb.PrioritizeJobRequest,
    "DeleteJob": pb.DeleteJobRequest,
    "ReportResult": pb.ReportResultRequest,
}
SCHEDULES = {
    "GetSchedule": pb.GetScheduleRequest,
    "UpdateSchedule": pb.UpdateScheduleRequest,
    "PauseSchedule": pb.PauseScheduleRequest,
    "ResumeSchedule": pb.ResumeScheduleRequest,
    "DeleteSchedule": pb.DeleteScheduleRequest,
    "FireSchedule": pb.FireScheduleRequest,
}


async def waiting(server: ServerUnderTest) -> str:
    return await server.submit("without-workers")


async def finished(server: ServerUnderTest) -> str:
    async with server.worker(topics=["mail"]) as worker:
        job_id = await server.submit("mail")
        await worker.complete(await worker.take_one())
    return job_id


async def repeat_with_another_payload(server: ServerUnderTest) -> Any:
    job_id = await waiting(server)
    return pb.SubmitJobRequest(topic="without-workers", payload=b"another", job_id=job_id)


async def name_for_another_schedule(server: ServerUnderTest) -> Any:
    await server.stub.CreateSchedule(pb.CreateScheduleRequest(topic="a", cron="@daily", name="taken"))
    return pb.CreateScheduleRequest(topic="a", cron="@hourly", name="taken")


async def fire_as_another_job(server: ServerUnderTest) -> Any:
    schedule = await server.stub.CreateSchedule(pb.CreateScheduleRequest(topic="a", cron="@daily"))
    return pb.FireScheduleRequest(schedule_id=schedule.schedule_id, job_id=await waiting(server))


# The state that each of these does not allow.
WRONG_STATES: dict[str, Callable[[ServerUnderTest], Awaitable[str]]] = {
    "CancelJob": finished,
    "RetryJob": waiting,
    "PrioritizeJob": finished,
    "DeleteJob": waiting,
    "ReportResult": waiting,
}
TAKEN = {
    "SubmitJob": repeat_with_another_payload,
    "CreateSchedule": name_for_another_schedule,
    "FireSchedule": fire_as_another_job,
}


async def request_for(server: ServerUnderTest, method: str, code: str) -> Any:
    """Return a request that the method should refuse with this code."""
    match code:
        case "NOT_FOUND" if method in SCHEDULES:
            return SCHEDULES[method](schedule_id=UNKNOWN_ID)
        case "NOT_FOUND" if method == "Explain":
            return pb.ExplainRequest(job_ids=[UNKNOWN_ID])
        case "NOT_FOUND":
            return JOBS[method](job_id=UNKNOWN_ID)
        case "FAILED_PRECONDITION":
            return JOBS[method](job_id=await WRONG_STATES[method](server))
    return await TAKEN[method](server)


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn) as running:
        yield running


async def test_calls_are_refused_for_the_reasons_on_the_page(server: ServerUnderTest) -> None:
    for method, note in NOTES.items():
        for code, when in note.refusals:
            request = await request_for(server, method, code)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await getattr(server.stub, method)(request)
            assert refused.value.code().name == code, f"{method}: {when}"


async def test_what_takes_a_job_or_a_schedule_says_on_the_page_that_there_may_be_none() -> None:
    noted = {method for method, note in NOTES.items() if "NOT_FOUND" in dict(note.refusals)}
    assert noted == JOBS.keys() | SCHEDULES.keys() | {"Explain"}
