"""The limits of one connection, over real sockets."""

import asyncio
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.base import tuning
from pulse_server.server import MAX_HEADER_BYTES
from tests.rows import each_row
from tests.transport.http2_frames import DATA, call_of, next_frame, opening
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

PATIENCE_SECONDS = 10
# Channels with the same options would share one connection.
ALONE = (("grpc.use_local_subchannel_pool", 1),)
# Takes 64 KiB before its reader has to show itself, instead of measuring how much the network would carry.
SMALL_WINDOW = (*ALONE, ("grpc.http2.bdp_probe", 0))
UNLIMITED = (*ALONE, ("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 1024 * 1024))


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_message_that_is_too_large_is_refused_and_the_connection_lives(server: ServerUnderTest) -> None:
    async with grpc.aio.insecure_channel(server.address, UNLIMITED) as channel:
        stub = PulseServiceStub(channel)
        await stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        changed = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))

        payload = bytes(tuning.MAX_MESSAGE_BYTES)
        refusal = await refusal_of(stub.SubmitJob(pb.SubmitJobRequest(topic="mail", payload=payload)))

        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert not changed.done(), "the connection was lost"
        changed.cancel()
    assert await server.table.count() == 0


async def test_metadata_that_is_too_large_is_refused_and_the_connection_lives(
    server: ServerUnderTest,
) -> None:
    async with grpc.aio.insecure_channel(server.address, UNLIMITED) as channel:
        stub = PulseServiceStub(channel)
        status = pb.GetDispatchStatusRequest()
        await stub.GetDispatchStatus(status)

        padding = "x" * MAX_HEADER_BYTES
        refusal = await refusal_of(stub.GetDispatchStatus(status, metadata=(("padding", padding),)))

        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.GetDispatchStatus(status)


async def test_metadata_below_the_bound_is_never_refused(server: ServerUnderTest) -> None:
    """gRPC refuses at random between a soft and a hard limit, unless the two are the same."""
    padding = (("padding", "x" * (MAX_HEADER_BYTES - 1024)),)

    for _ in range(50):
        await server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest(), metadata=padding)


async def test_idle_connection_is_closed_and_a_worker_is_not_idle(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.CONNECTION_IDLE", 0.3 * SECOND)
    async with (
        server_under_test(database_dsn) as server,
        grpc.aio.insecure_channel(server.address, ALONE) as idle,
        grpc.aio.insecure_channel(server.address, ALONE) as working,
    ):
        stream = PulseServiceStub(working).StreamJobs(
            pb.StreamJobsRequest(topics=["mail"], worker_id="w", capacity=1)
        )
        assert (await stream.read()).HasField("welcome")
        await PulseServiceStub(idle).GetDispatchStatus(pb.GetDispatchStatusRequest())

        async with asyncio.timeout(PATIENCE_SECONDS):
            await idle.wait_for_state_change(grpc.ChannelConnectivity.READY)

        assert working.get_state() is grpc.ChannelConnectivity.READY
        job_id = await server.submit()
        assert (await stream.read()).assignments[0].job_id == job_id


async def test_client_connects_again_after_it_was_idle(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.CONNECTION_IDLE", 0.1 * SECOND)
    async with server_under_test(database_dsn) as server:
        await server.submit()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

        assert await server.submit()


async def test_calls_beyond_the_bound_of_a_connection_wait_for_others_to_end(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.CONNECTION_STREAMS", 2)
    async with server_under_test(database_dsn) as server:
        await server.submit()  # the client knows the bound once it is connected
        async with server.worker("w1"), server.worker("w2") as second:
            waiting = asyncio.ensure_future(
                server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest(), timeout=PATIENCE_SECONDS)
            )
            async with grpc.aio.insecure_channel(server.address, ALONE) as other:
                await PulseServiceStub(other).GetDispatchStatus(pb.GetDispatchStatusRequest())
            assert not waiting.done()

            second.leave()

            await waiting


@pytest.fixture
def short_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has half a second to read a message. Leases are 30 s: none expires in these tests."""
    monkeypatch.setattr("pulse_server.work.worker_rpcs.STREAM_WRITE_SHARE", 1 / 60)


JOBS = 42  # so many may wait for a worker: a message on its way, and as many behind it
PAYLOAD = bytes(100_000)  # 21 of them make a message


@pytest.mark.usefixtures("short_write")
async def test_worker_that_does_not_read_loses_what_it_was_not_given_to_another(database_dsn: str) -> None:
    async with (
        server_under_test(database_dsn) as server,
        grpc.aio.insecure_channel(server.address, SMALL_WINDOW) as channel,
    ):
        stalled = PulseServiceStub(channel).StreamJobs(
            pb.StreamJobsRequest(topics=["mail"], worker_id="stalled", capacity=JOBS)
        )
        await server.submit_many(JOBS, payload=PAYLOAD)
        await server.table.wait_for_count(JOBS, "locked_by = 'stalled'")

        async with server.worker("other", capacity=JOBS) as other:
            taken = await other.take(JOBS // 2)

            assert {job.attempt for job in taken} == {1}, "what was not delivered costs no attempt"
            await other.complete(*taken)
        assert server.app.dispatch.roster.census().workers <= 1, "the stalled stream is off the books"
        stalled.cancel()


@pytest.mark.usefixtures("short_write")
async def test_stream_that_was_not_read_ends_with_a_sentence(database_dsn: str) -> None:
    async with (
        server_under_test(database_dsn) as server,
        grpc.aio.insecure_channel(server.address, SMALL_WINDOW) as channel,
    ):
        async with StreamingWorker(PulseServiceStub(channel), "stalled", capacity=JOBS) as stalled:
            await server.submit_many(JOBS, payload=PAYLOAD)
            await server.table.wait_for_count(JOBS, "locked_by = 'stalled'")
            async with server.worker("other", capacity=JOBS) as other:
                await other.take(1)  # what waited for the stalled one was given back
                refusal = await refusal_of(read_to_the_end(stalled))

        assert refusal.code() is grpc.StatusCode.UNAVAILABLE
        assert "did not read it" in (refusal.details() or "")


async def read_to_the_end(worker: StreamingWorker) -> None:
    while True:
        await worker.message()


async def answer_on(stream: int, reader: asyncio.StreamReader) -> bytes:
    """Return the first message of the stream."""
    while True:
        kind, _, of_stream, body = await next_frame(reader)
        if kind == DATA and of_stream == stream:
            return body


@each_row("path", [b"/\xff\xfe/x", b"/a\0b/c", b"/", b"*", b"no-slash"])
async def test_path_that_names_no_method_does_not_end_the_server(
    server: ServerUnderTest, path: bytes
) -> None:
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(opening() + call_of(1, path))
    writer.write(call_of(3, b"/pulse.v1.PulseService/GetDispatchStatus"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await answer_on(3, reader)
    writer.close()

    async with grpc.aio.insecure_channel(server.address, ALONE) as channel:
        await PulseServiceStub(channel).GetDispatchStatus(pb.GetDispatchStatusRequest())


async def test_worker_that_receives_nothing_may_ping(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.server.PING_INTERVAL", 0.05 * SECOND)
    pings = (
        *ALONE,
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with (
        server_under_test(database_dsn) as server,
        grpc.aio.insecure_channel(server.address, pings) as channel,
    ):
        request = pb.StreamJobsRequest(topics=["mail"], worker_id="w1", capacity=1)
        stream = PulseServiceStub(channel).StreamJobs(request)
        await stream.read()  # the welcome
        with pytest.raises(TimeoutError):  # nothing comes, the end included
            async with asyncio.timeout(4.5):  # gRPC pings once a second at the most, and forgives twice
                await stream.read()
