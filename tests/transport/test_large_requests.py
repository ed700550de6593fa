"""Requests that unfold when they are parsed: their fields are counted before that, at every level."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors import boundary
from pulse_server.doors.boundary import FIELD_BYTES, UNCOUNTED_BYTES, Parser, Unreadable
from tests.rows import each_row
from tests.transport.dense_messages import REQUESTS, dense_messages, field, repeats
from tests.transport.pulse_server_under_test import ServerUnderTest

MIB = 1024 * 1024
BOMB = 3 * MIB
SMALL_BOMB = 8 * 1024


def empty_entries(message_type: type[Message], name: str) -> bytes:
    """Return a message with as many list entries as fit: two bytes each."""
    return repeats(field(message_type.DESCRIPTOR.fields_by_name[name].number), BOMB)


def job_with_metadata() -> bytes:
    """Return a job that has hundreds of thousands of metadata entries."""
    number = pb.SubmitJobRequest.DESCRIPTOR.fields_by_name["metadata"].number
    return repeats(b"".join(field(number, field(1, bytes([65 + letter]))) for letter in range(26)), BOMB)


BOMBS = {
    "jobs": ("SubmitJobs", empty_entries(pb.SubmitJobsRequest, "jobs")),
    "metadata": ("SubmitJobs", field(1, job_with_metadata())),
    "one job": ("SubmitJob", job_with_metadata()),
    "claims": ("Heartbeats", empty_entries(pb.HeartbeatsRequest, "claims")),
    "results": ("ReportResults", empty_entries(pb.ReportResultsRequest, "results")),
    "topics": ("ListTopics", empty_entries(pb.ListTopicsRequest, "topics")),
    "filters": ("CountJobs", repeats(field(1, repeats(field(7, field(1, b"abcdef")), MIB // 4)), BOMB)),
    "unknown fields": ("ListServers", repeats(b"\x78\x00", BOMB)),
}


@each_row("name", BOMBS)
async def test_request_that_unfolds_into_hundreds_of_thousands_of_entries_is_refused_unparsed(
    server: ServerUnderTest, name: str
) -> None:
    method, request = BOMBS[name]
    call: Any = server.channel.unary_unary(f"/pulse.v1.PulseService/{method}")
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have") as refused:
        await call(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@each_row("jobs", [BOMBS["jobs"][1], field(1, job_with_metadata())])
async def test_line_refuses_such_a_message_too(server: ServerUnderTest, jobs: bytes) -> None:
    stream: Any = server.channel.stream_stream("/pulse.v1.PulseService/StreamSubmits")()
    await stream.write(b"\x08\x01" + field(2, jobs))
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have"):
        await stream.read()


async def test_line_refuses_repeats_that_merge_into_millions_of_jobs(server: ServerUnderTest) -> None:
    """Protobuf merges repeats: here, of requests of 120,000 empty jobs."""
    stream: Any = server.channel.stream_stream("/pulse.v1.PulseService/StreamSubmits")()
    await stream.write(repeats(field(2, repeats(field(1), 240_000)), BOMB))
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have"):
        await stream.read()


async def parsed(message_type: type[Message], data: bytes) -> Message | Unreadable:
    return await Parser(message_type)(data).parse()


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count 400 fields instead of 100,000, in messages of 512 bytes and more."""
    monkeypatch.setattr(boundary, "MOST_FIELDS", 400)
    monkeypatch.setattr(boundary, "UNCOUNTED_BYTES", 512)


def cases(entry: int) -> list[Any]:
    return [
        (message_type, data)
        for message_type in REQUESTS.values()
        for _, data in dense_messages(message_type.DESCRIPTOR, SMALL_BOMB, entry)
    ]


@pytest.mark.usefixtures("small_bounds")
@each_row("message_type, data", [*cases(entry=256), *cases(entry=SMALL_BOMB)])
async def test_fields_of_nested_messages_are_counted(message_type: type[Message], data: bytes) -> None:
    """Of many repeats of a message, and of one that is full of entries."""
    found = await parsed(message_type, data)

    assert isinstance(found, Unreadable)
    assert found.has_too_many_fields


def job() -> pb.SubmitJobRequest:
    job = pb.SubmitJobRequest(topic="mail", payload=bytes(1000), metadata={"a": "b", "c": "d"})
    job.delay.seconds = 5
    return job


async def test_large_request_is_counted_in_turns_and_weighs_what_it_takes() -> None:
    request = pb.SubmitJobsRequest(jobs=[job()] * 3000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    unparsed = Parser(pb.SubmitJobsRequest)(request.SerializeToString())
    weight = await unparsed.weigh()
    counter.cancel()

    fields = 3000 * (1 + 2 + 2 + 1)  # the job, its texts, its metadata and its delay
    assert weight == request.ByteSize() + FIELD_BYTES * fields
    assert turns >= fields // 2048
    assert await unparsed.parse() == request


@each_row("size", [UNCOUNTED_BYTES // 2, MIB, 3 * MIB])
async def test_request_that_was_cut_off_is_unreadable(size: int) -> None:
    request = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(payload=bytes(2 * MIB))] * 2)

    found = await parsed(pb.SubmitJobsRequest, request.SerializeToString()[:size])

    assert isinstance(found, Unreadable)
    assert not found.has_too_many_fields


async def test_message_above_4_mib_is_refused_with_both_sizes(server: ServerUnderTest) -> None:
    """Refused by gRPC, before anything of it is kept."""
    with pytest.raises(grpc.aio.AioRpcError, match=r"larger than max \(\d+ vs. 4194304\)") as refused:
        await server.stub.SubmitJob(pb.SubmitJobRequest(topic="mail", payload=bytes(5 * MIB)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_job_with_a_payload_that_is_too_large_is_still_refused_alone(server: ServerUnderTest) -> None:
    jobs = [pb.SubmitJobRequest(topic="mail", payload=bytes(size)) for size in (10, MIB + 1, MIB)]
    answer = await server.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=jobs))

    assert [bool(result.job_id) for result in answer.results] == [True, False, True]
    assert "payload" in answer.results[1].refusal.message
