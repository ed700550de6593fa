"""Callers that read nothing, or open many streams, do not decide how much memory pulsed takes."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.server.pulsed_process import Pulsed, pulsed
from tests.server.test_memory_of_pulsed import ALONE, LARGE, MIB, Stalling, most_memory, stub_of
from tests.transport.authorized import basic, caller
from tests.transport.http2_frames import (
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    call_of,
    frame,
    message,
    next_frame,
    usual_headers,
)

USERS = "admin:tweety-4711:admin,viewer:tweety-4711:viewer,worker:tweety-4711:worker"
NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)  # SETTINGS_INITIAL_WINDOW_SIZE = 0: no answer may be sent


@asynccontextmanager
async def caller_as(server: Pulsed, user: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(server.address, ALONE) as channel:
        yield caller(channel, user)


async def ended_streams(reader: asyncio.StreamReader, count: int) -> None:
    """Return once so many calls of the connection were answered with a status."""
    while count:
        kind, flags, _, _ = await next_frame(reader)
        count -= kind == HEADERS and bool(flags & END_STREAM)


async def test_unread_answers_are_bounded_in_bytes(database_dsn: str) -> None:
    async with pulsed(database_dsn, PULSE_AUTH_USERS=USERS) as server, caller_as(server, "admin") as admin:
        job = await admin.SubmitJob(pb.SubmitJobRequest(topic="large", payload=bytes(MIB)))
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE + frame(SETTINGS, 0, 0, NO_WINDOW))
        request = message(pb.GetJobRequest(job_id=job.job_id).SerializeToString())
        (key, value), *_ = basic("viewer")
        headers = [*usual_headers(b"/pulse.v1.PulseService/GetJob"), (key.encode(), value.encode())]
        for number in range(250):
            writer.write(call_of(2 * number + 1, b"", request, headers))
            await writer.drain()
        async with asyncio.timeout(4 * PATIENCE_SECONDS):
            await ended_streams(reader, 200)

        print("MEMORY", most_memory(server))
        assert most_memory(server) < 400
        answer = await admin.GetJob(pb.GetJobRequest(job_id=job.job_id))
        assert len(answer.job.payload) == MIB, "other callers have room of their own"
        writer.close()


async def until_stored(stub: Any, jobs: pb.SubmitJobsRequest) -> None:
    """Submit the jobs. A server that is busy with watchers may read the answer of its database too late."""
    async with asyncio.timeout(4 * PATIENCE_SECONDS):
        while True:
            try:
                await stub.SubmitJobs(jobs)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            else:
                return


async def test_watchers_that_read_nothing_miss_transitions_and_take_little(database_dsn: str) -> None:
    many = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="x" * 250)] * 1000)
    async with pulsed(database_dsn, PULSE_AUTH_USERS=USERS) as server, caller_as(server, "admin") as admin:
        async with caller_as(server, "viewer") as viewer:
            watchers = [viewer.WatchJobs(pb.WatchJobsRequest()) for _ in range(900)]
            for watcher in watchers:
                await watcher.read()
            for _ in range(3):
                await until_stored(admin, many)
            # A caller of gRPC reads ahead; what it has in all is more than a watcher of one may take.
            missed = 0
            async with asyncio.timeout(4 * PATIENCE_SECONDS):
                while not missed:
                    missed = sum([(await watcher.read()).missed for watcher in watchers])
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 400


async def test_filters_of_watchers_are_bounded_in_bytes(database_dsn: str) -> None:
    request = pb.WatchJobsRequest(
        job_ids=[str(uuid.uuid4()) for _ in range(1000)], topics=[f"{n:0255}" for n in range(1000)]
    )
    async with pulsed(database_dsn, PULSE_AUTH_USERS=USERS) as server, caller_as(server, "viewer") as viewer:
        watchers = [viewer.WatchJobs(request)]

        async def watch_with_many() -> None:
            while len(watchers) < 600:
                watchers.append(viewer.WatchJobs(request))
                await watchers[-1].read()

        with pytest.raises(grpc.aio.AioRpcError, match="Too many calls are in progress"):
            await watch_with_many()
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 400
        async with caller_as(server, "admin") as admin:
            await admin.SubmitJob(pb.SubmitJobRequest(topic="small"))


async def test_messages_that_never_end_on_lines_take_little_and_lines_open_again(database_dsn: str) -> None:
    message = pb.StreamSubmitsRequest(number=1, request=LARGE)

    async def send_most(address: str) -> None:
        async with stub_of(address) as stub:
            line = stub.StreamSubmits()
            await line.write(message)
            await line.read()

    async def is_answered() -> bool:
        async with stub_of(server.address) as stub:
            line = stub.StreamSubmits()
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await line.write(pb.StreamSubmitsRequest(number=7))
                return (await line.read()) is not grpc.aio.EOF
            return False

    async with pulsed(database_dsn) as server, Stalling(server.address, 3 * MIB) as address:
        lines = [asyncio.create_task(send_most(address)) for _ in range(150)]
        await server.wait_for("lines_ended_for_memory")
        await eventually(is_answered)
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 512
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)


async def test_workflows_whose_messages_never_end_take_little(database_dsn: str) -> None:
    job = pb.WorkflowJob(name="a", job=pb.SubmitJobRequest(topic="t", payload=bytes(4 * MIB - 1000)))

    async def send_most(address: str) -> None:
        async with stub_of(address) as stub:
            await stub.SubmitWorkflow(iter([pb.SubmitWorkflowRequest(jobs=[job])]))

    async def is_stored() -> bool:
        job = pb.WorkflowJob(name="a", job=pb.SubmitJobRequest(topic="t"))
        whole = pb.SubmitWorkflowRequest(workflow_id=str(uuid.uuid4()), name="small", jobs=[job])
        async with stub_of(server.address) as stub:
            with suppress(grpc.aio.AioRpcError):
                return len((await stub.SubmitWorkflow(iter([whole]))).job_ids) == 1
            return False

    async with pulsed(database_dsn) as server, Stalling(server.address, 3 * MIB) as address:
        workflows = [asyncio.create_task(send_most(address)) for _ in range(150)]
        await server.wait_for("lines_ended_for_memory")
        await eventually(is_stored)
        assert most_memory(server) < 512
        for workflow in workflows:
            workflow.cancel()
        await asyncio.gather(*workflows, return_exceptions=True)


async def test_messages_that_never_end_take_little_when_callers_wait_for_jobs(database_dsn: str) -> None:
    large = pb.AwaitJobsRequest(add=["x" * (4 * MIB - 1000)])

    async def send_most(address: str) -> None:
        async with stub_of(address) as stub:
            waits = stub.AwaitJobs()
            await waits.write(large)
            while await waits.read() is not grpc.aio.EOF:
                pass

    async def is_welcomed() -> bool:
        async with stub_of(server.address) as stub:
            with suppress(grpc.aio.AioRpcError):
                return (await stub.AwaitJobs().read()) == pb.AwaitJobsResponse()
            return False

    async with pulsed(database_dsn) as server, Stalling(server.address, 3 * MIB) as address:
        waits = [asyncio.create_task(send_most(address)) for _ in range(150)]
        await server.wait_for("lines_ended_for_memory")
        await eventually(is_welcomed)
        print("MEMORY", most_memory(server))
        assert most_memory(server) < 512
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
