"""AwaitJobs within bounds: of messages, of jobs, and of what is wrong."""

from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import Unavailable
from pulse_server.work import awaiting
from pulse_server.work.awaiting import AwaitedJobs
from tests.rows import each_row
from tests.transport.awaiting_caller import UNKNOWN, awaited, complete, settled
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test


async def test_many_jobs_with_large_results_arrive_in_bounded_messages(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "ANSWER_BYTES", 100_000)
    job_ids = await server.submit_many(10)
    await complete(server, count=10, result=b"x" * 60_000)
    async with awaited(server) as waits:
        await waits.add(*job_ids)
        found: list[str] = []
        while len(found) < 10:
            message = await waits.next()
            assert len(message.finished) <= 2
            found += [view.job_id for view in message.finished]
    assert sorted(found) == sorted(job_ids)


async def test_wait_survives_a_database_that_is_away(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "RETRY_PAUSE", 0.01 * SECOND)
    failures = 0
    read = AwaitedJobs.finished_jobs

    async def fail_first(awaited: AwaitedJobs, *args: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise Unavailable("The database did not answer. Try again.")
        return await read(awaited, *args)

    monkeypatch.setattr(AwaitedJobs, "finished_jobs", fail_first)
    job_id = await server.submit()
    async with awaited(server) as waits:
        await waits.add(job_id)
        await complete(server)
        assert list(await waits.finished(1)) == [job_id]
    assert failures > 3


async def test_server_that_stops_ends_the_stream_in_order(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as server:
        job_id = await server.submit()
        async with awaited(server) as waits:
            await waits.add(job_id)
            await settled(server)
            server.app.watchers.end_watching()
            assert await waits.next() is grpc.aio.EOF


@each_row(
    "request_, sentence",
    [
        (pb.AwaitJobsRequest(add=["x"]), "add"),
        (pb.AwaitJobsRequest(drop=["x"]), "drop"),
        (pb.AwaitJobsRequest(add=[UNKNOWN] * 20_001), "add has 20001 entries; 20000 are allowed"),
    ],
)
async def test_bad_request_is_refused_with_a_sentence(
    server: ServerUnderTest, request_: pb.AwaitJobsRequest, sentence: str
) -> None:
    async with awaited(server) as waits:
        await waits.call.write(request_)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await waits.next()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in (error.value.details() or "")


async def test_message_larger_than_any_may_be_is_refused_unparsed(server: ServerUnderTest) -> None:
    async with awaited(server) as waits:
        await waits.call.write(pb.AwaitJobsRequest(add=["x" * (5 * 1024 * 1024)]))
        with pytest.raises(grpc.aio.AioRpcError, match=r"larger than max \(\d+ vs\. 4194304\)") as error:
            await waits.next()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_stream_waits_for_a_bounded_number_of_jobs(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.base.bounds.MAX_AWAITED", 2)
    job_ids = await server.submit_many(3)
    async with awaited(server) as waits:
        await waits.add(*job_ids)
        with pytest.raises(grpc.aio.AioRpcError, match="at most 2 jobs"):
            await waits.next()


async def test_server_keeps_a_bounded_number_of_awaited_jobs_for_a_caller(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "MOST_AWAITED_OF_ONE_CALLER", 3)
    async with server_under_test(database_dsn) as server:
        job_ids = await server.submit_many(4)
        async with awaited(server) as first, awaited(server) as second:
            await first.add(*job_ids[:2])
            await settled(server)
            await second.add(*job_ids[2:])
            with pytest.raises(grpc.aio.AioRpcError, match="as many awaited jobs as it can"):
                await second.next()
