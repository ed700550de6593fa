"""Unique jobs over the wire, and through two servers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.bad_job_requests import BAD_UNIQUE
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test


def span(seconds: float) -> Duration:
    message = Duration()
    message.FromTimedelta(timedelta(seconds=seconds))
    return message


def request(key: str = "shop-7", payload: bytes = b"", **unique: Any) -> pb.SubmitJobRequest:
    return pb.SubmitJobRequest(topic="mail", payload=payload, unique=pb.Unique(key=key, **unique))


async def submit(server: ServerUnderTest, *jobs: pb.SubmitJobRequest) -> list[pb.SubmitResult]:
    return list((await server.stub.SubmitJobs(pb.SubmitJobsRequest(unique_jobs=jobs))).results)


async def test_second_job_is_a_duplicate_of_the_first(server: ServerUnderTest) -> None:
    """By every way of submitting."""
    (first,) = await submit(server, request())
    assert not first.duplicate
    again = await server.stub.SubmitJob(request())
    assert (again.job_id, again.duplicate, again.replaced) == (first.job_id, True, False)
    mixed = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail"), request()], unique_jobs=[request()])
    results = (await server.stub.SubmitJobs(mixed)).results
    assert [result.duplicate for result in results] == [False, True, True]

    async def line() -> AsyncIterator[pb.StreamSubmitsRequest]:
        yield pb.StreamSubmitsRequest(number=1, request=pb.SubmitJobsRequest(unique_jobs=[request()]))

    async for answer in server.stub.StreamSubmits(line()):
        assert [result.job_id for result in answer.response.results] == [first.job_id]
    view = await server.get(first.job_id)
    assert (view.unique_key, view.unique_scope) == ("shop-7", "waiting")


async def test_key_that_no_longer_holds_is_still_shown(server: ServerUnderTest) -> None:
    (first,) = await submit(server, request())
    async with server.worker() as worker:
        job = await worker.take_one()
        view = await server.get(first.job_id)
        assert (view.unique_key, view.unique_scope) == ("shop-7", "")
        await worker.complete(job)
    assert (await server.get(first.job_id)).unique_key == "shop-7"


async def test_replaced_job_that_was_delayed_reaches_a_worker_at_once(server: ServerUnderTest) -> None:
    """The tick is a minute away: the replacement wakes dispatch."""
    delayed = request(on_conflict="replace")
    delayed.delay.CopyFrom(span(3600))
    (first,) = await submit(server, delayed)
    async with server.worker() as worker:
        await server.dispatch_settles()
        (second,) = await submit(server, request(payload=b"new", on_conflict="replace"))
        assert (second.job_id, second.duplicate, second.replaced) == (first.job_id, True, True)
        job = await worker.take_one()
        assert (job.job_id, job.payload) == (first.job_id, b"new")


async def test_debounced_job_waits_for_its_period(server: ServerUnderTest) -> None:
    (first,) = await submit(server, request(on_conflict="debounce", period=span(3600)))
    view = await server.get(first.job_id)
    waits = view.next_run_at.ToDatetime() - view.submitted_at.ToDatetime()
    assert timedelta(minutes=59) < waits < timedelta(minutes=61)


@each_row("unique, sentence", BAD_UNIQUE)
async def test_unique_that_makes_no_sense_is_refused(
    server: ServerUnderTest, unique: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.SubmitJob(request(**{"key": "k", **unique}))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in (refused.value.details() or "")


async def test_debounce_with_a_delay_and_unique_columns_are_refused(server: ServerUnderTest) -> None:
    delayed = request(on_conflict="debounce", period=span(1))
    delayed.delay.CopyFrom(span(1))
    (result,) = await submit(server, delayed)
    assert "give no delay and no run_at" in result.refusal.message
    columns = pb.JobColumns(options=request(), job_ids=bytes(16), payload_sizes=[0])
    with pytest.raises(grpc.aio.AioRpcError, match="send these in unique_jobs"):
        await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=columns))


async def test_retry_of_a_job_whose_live_key_is_taken_is_refused_with_the_holder(
    server: ServerUnderTest,
) -> None:
    (first,) = await submit(server, request(scope="live"))
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=first.job_id))
    (second,) = await submit(server, request(scope="live"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.RetryJob(pb.RetryJobRequest(job_id=first.job_id))

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"the unique key 'shop-7', which job {second.job_id} holds" in (refused.value.details() or "")
    which = pb.JobFilter(topic="mail", status="CANCELED")
    bulk = await server.stub.RetryJobs(pb.RetryJobsRequest(filter=which))
    assert (bulk.retried, bulk.locked, bulk.held) == (0, 0, 1)


async def test_two_servers_store_one_job_of_each_key(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        answers = await asyncio.gather(
            *(
                submit(server, *(request(f"shop-{key}") for key in range(20)))
                for _ in range(5)
                for server in (a, b)
            )
        )
        stored = [result for results in answers for result in results if not result.duplicate]
        assert len(stored) == 20
        assert {result.job_id for results in answers for result in results} == {one.job_id for one in stored}
