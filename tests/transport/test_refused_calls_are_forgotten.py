"""A refused call leaves nothing in memory, whatever its size and number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors.boundary import SERVICE
from tests.left_over import left_over
from tests.transport.authorized import USERS, basic
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

UNKNOWN_ID = "0190f3a0-0000-7000-8000-00000000dead"
INVALID = grpc.StatusCode.INVALID_ARGUMENT
# Each would have kept the whole request.
LEFT_BY_A_REFUSAL = {"AbortError", "InvalidArgument", "Unauthenticated", "JobNotFound", "AlreadyExists"}


async def called(channel: grpc.aio.Channel, path: str, request: Message, metadata: Any = ()) -> Any:
    """Return the status, or the answer as bytes: in this process only the server parses messages."""
    call: Any = channel.unary_unary(path)
    try:
        return await call(request.SerializeToString(), metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()


@pytest.mark.parametrize(
    ("path", "request_", "code"),
    [
        (f"/{SERVICE}/SubmitJob", pb.SubmitJobRequest(topic="two words", payload=b"x" * 1000), INVALID),
        (f"/{SERVICE}/GetJob", pb.GetJobRequest(job_id=UNKNOWN_ID), grpc.StatusCode.NOT_FOUND),
        (
            f"/{SERVICE}/ReportResult",
            pb.ReportResultRequest(job_id=UNKNOWN_ID, worker_id="w", attempt=1, success=True),
            grpc.StatusCode.NOT_FOUND,
        ),
        (
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest(service="x" * 1000),
            grpc.StatusCode.NOT_FOUND,
        ),
    ],
)
async def test_refused_call_is_forgotten_at_once(
    server: ServerUnderTest, path: str, request_: Message, code: grpc.StatusCode
) -> None:
    with left_over() as types:
        for _ in range(3):  # the last may not be over when its caller knows
            assert await called(server.channel, path, request_) is code

    assert not {*LEFT_BY_A_REFUSAL, type(request_).__name__} & set(types)


async def test_submit_that_clashes_with_another_is_forgotten_at_once(server: ServerUnderTest) -> None:
    request = pb.SubmitJobRequest(topic="mail", job_id=await server.submit("mail"), payload=b"another")
    with left_over() as types:
        for _ in range(3):
            code = await called(server.channel, f"/{SERVICE}/SubmitJob", request)
            assert code is grpc.StatusCode.ALREADY_EXISTS

    assert not {*LEFT_BY_A_REFUSAL, "SubmitJobRequest"} & set(types)


async def test_refused_items_of_a_batch_are_forgotten_at_once(server: ServerUnderTest) -> None:
    jobs = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="two words"), pb.SubmitJobRequest(topic="a")])
    reports = pb.ReportResultsRequest(worker_id="w", results=[pb.Result(job_id="nope"), pb.Result()])
    with left_over() as types:
        submitted = await called(server.channel, f"/{SERVICE}/SubmitJobs", jobs)
        reported = await called(server.channel, f"/{SERVICE}/ReportResults", reports)

    submitted, reported = (
        pb.SubmitJobsResponse.FromString(submitted),
        pb.ReportResultsResponse.FromString(reported),
    )
    assert [result.refusal.code for result in submitted.results] == [INVALID.value[0], 0]
    assert [refused.index for refused in reported.refused] == [0, 1]
    assert not {*LEFT_BY_A_REFUSAL, "SubmitJobRequest", "Result"} & set(types)


@pytest.fixture
async def guarded(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=USERS) as server:
        yield server


@pytest.mark.parametrize("metadata", [(), basic("admin", "wrong")], ids=["no user", "wrong password"])
async def test_caller_who_is_not_let_in_is_forgotten_at_once(guarded: ServerUnderTest, metadata: Any) -> None:
    with left_over() as types:
        for _ in range(3):
            code = await called(guarded.channel, f"/{SERVICE}/SubmitJob", pb.SubmitJobRequest(), metadata)
            assert code is grpc.StatusCode.UNAUTHENTICATED

    assert not LEFT_BY_A_REFUSAL & set(types)
