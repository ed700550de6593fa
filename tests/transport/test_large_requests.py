"""Requests that are large on the wire or once parsed: other calls are served, and memory is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.transport.grpc.parsing import Parser, Unreadable
from pulse_server.transport.grpc.wire_walk import PARSE_TURN_BYTES
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

MIB = 1024 * 1024
BOMB = 4 * MIB


def empty_entries(message_type: type[Message], field: str) -> bytes:
    """Return a message with as many list entries as fit: two bytes each."""
    number = message_type.DESCRIPTOR.fields_by_name[field].number
    return bytes([number << 3 | 2, 0]) * (BOMB // 2)


def one_job_with_metadata() -> bytes:
    """Return a message with one job that has hundreds of thousands of metadata entries."""
    number = pb.SubmitJobRequest.DESCRIPTOR.fields_by_name["metadata"].number
    entry = bytes([number << 3 | 2, 3, 10, 1])
    job = b"".join(entry + bytes([65 + letter]) for letter in range(26)) * (BOMB // 5 // 26)
    return b"\x0a" + _length(len(job)) + job


def _length(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def in_a_line(request: bytes) -> bytes:
    return b"\x08\x01\x12" + _length(len(request)) + request


JOBS = empty_entries(pb.SubmitJobsRequest, "jobs")
BOMBS = {
    "jobs": ("SubmitJobs", JOBS),
    "metadata": ("SubmitJobs", one_job_with_metadata()),
    "claims": ("Heartbeats", empty_entries(pb.HeartbeatsRequest, "claims")),
    "results": ("ReportResults", empty_entries(pb.ReportResultsRequest, "results")),
    "topics": ("ListTopics", empty_entries(pb.ListTopicsRequest, "topics")),
    "unknown fields": ("ListServers", b"\x78\x00" * (BOMB // 2)),
}


@each_row("name", BOMBS)
async def test_request_that_unfolds_into_millions_of_entries_is_refused_unparsed(
    server: ServerUnderTest, name: str
) -> None:
    method, request = BOMBS[name]
    call: Any = server.channel.unary_unary(f"/pulse.v1.PulseService/{method}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(request)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "has more entries than any call may have" in str(refused.value.details())


async def test_line_refuses_such_a_message_too(server: ServerUnderTest) -> None:
    stream: Any = server.channel.stream_stream("/pulse.v1.PulseService/StreamSubmits")()
    await stream.write(in_a_line(JOBS))
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have"):
        await stream.read()


async def test_large_request_is_parsed_in_turns() -> None:
    request = pb.SubmitJobsRequest(
        jobs=[pb.SubmitJobRequest(topic="mail", payload=bytes(1000), metadata={"a": "b"})] * 5000
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    parsed = await Parser(pb.SubmitJobsRequest)(request.SerializeToString()).parse()
    counter.cancel()

    assert parsed == request
    assert turns >= request.ByteSize() // PARSE_TURN_BYTES


@each_row("size", [PARSE_TURN_BYTES // 2, MIB, 3 * MIB])
async def test_request_that_was_cut_off_is_unreadable(size: int) -> None:
    request = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(payload=bytes(3 * MIB))] * 2)
    data = request.SerializeToString()[:size]

    assert isinstance(await Parser(pb.SubmitJobsRequest)(data).parse(), Unreadable)


async def test_job_with_a_payload_that_is_too_large_is_still_refused_alone(server: ServerUnderTest) -> None:
    jobs = [pb.SubmitJobRequest(topic="mail", payload=bytes(size)) for size in (10, 2 * MIB, MIB)]
    answer = await server.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=jobs))

    assert [bool(result.job_id) for result in answer.results] == [True, False, True]
    assert "payload" in answer.results[1].refusal.message
