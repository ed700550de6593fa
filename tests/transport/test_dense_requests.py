"""Requests that unfold when they are parsed: their fields are counted at every level before that."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.transport.grpc import parsing, wire_walk
from pulse_server.transport.grpc.intake import LARGE_REQUEST_BYTES
from pulse_server.transport.grpc.parsing import Parser, Unreadable
from pulse_server.transport.grpc.wire_walk import PARSE_TURN_BYTES
from tests.rows import each_row
from tests.transport.dense_messages import REQUESTS, dense_messages, field, repeats
from tests.transport.pulse_server_under_test import ServerUnderTest

MIB = 1024 * 1024
# Of the tests that use small bounds.
TURN = 512
MOST = 400
LARGE = 8 * 1024


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count 400 fields instead of 400,000, and parse 512 bytes in a turn."""
    monkeypatch.setattr(wire_walk, "MOST_FIELDS", MOST)
    monkeypatch.setattr(wire_walk, "PARSE_TURN_BYTES", TURN)
    monkeypatch.setattr(parsing, "PARSE_TURN_BYTES", TURN)


def cases(entry: int) -> list[Any]:
    return [
        (message_type, data)
        for message_type in REQUESTS.values()
        for _, data in dense_messages(message_type.DESCRIPTOR, LARGE, entry)
    ]


async def parsed(message_type: type[Message], data: bytes) -> Message | Unreadable:
    return await Parser(message_type)(data).parse()


@pytest.mark.usefixtures("small_bounds")
@each_row("message_type, data", cases(entry=TURN // 2))
async def test_repeats_of_nested_messages_are_counted(message_type: type[Message], data: bytes) -> None:
    found = await parsed(message_type, data)

    assert isinstance(found, Unreadable)
    assert found.has_too_many_fields


@pytest.mark.usefixtures("small_bounds")
@each_row("message_type, data", cases(entry=LARGE))
async def test_one_nested_message_full_of_entries_is_counted(
    message_type: type[Message], data: bytes
) -> None:
    found = await parsed(message_type, data)

    assert isinstance(found, Unreadable)
    assert found.has_too_many_fields


def large_messages() -> list[Message]:
    job = pb.SubmitJobRequest(topic="mail", payload=bytes(100), metadata={"a": "b", "c": "d"})
    job.delay.seconds = 5
    jobs = pb.SubmitJobsRequest(jobs=[job] * 5, unique_jobs=[job] * 6, brief=True)
    columns = pb.JobColumns(options=job, job_ids=bytes(16 * 40), payload_sizes=[5] * 40, payloads=bytes(900))
    return [
        jobs,
        pb.StreamSubmitsRequest(number=7, request=jobs),
        pb.StreamSubmitsRequest(number=2**60, request=pb.SubmitJobsRequest(columns=columns)),
        pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail", payload=bytes(3 * TURN)), job]),
        pb.CountJobsRequest(filter=pb.JobFilter(metadata={str(number): "x" * 20 for number in range(90)})),
        pb.ReportResultsRequest(
            worker_id="w1",
            results=[pb.Result(job_id="a" * 36, attempt=1, suspension=pb.Suspension(step="s"))] * 20,
            returned={number: bytes(number * 10) for number in range(20)},
        ),
        pb.AwaitJobsRequest(add=["a" * 36] * 50, drop=["b" * 36] * 2),
    ]


@pytest.mark.usefixtures("small_bounds")
@each_row("message", large_messages())
async def test_large_request_that_is_parsed_in_pieces_is_the_same(message: Message) -> None:
    data = message.SerializeToString()

    assert len(data) > 2 * TURN
    assert await parsed(type(message), data) == message


@pytest.mark.usefixtures("small_bounds")
@each_row("message", large_messages())
async def test_piece_has_what_fits_into_a_turn_or_one_field(message: Message) -> None:
    data = message.SerializeToString()
    walk = wire_walk.Walk(wire_walk.shape_of(type(message).DESCRIPTOR))
    for _ in walk.turns(data):
        pass

    larger = [piece for piece in walk.pieces if piece.end - piece.begin > TURN]
    assert len(larger) <= 2, "the job with a payload of 3 turns; the ids and the payloads in columns"


async def test_entry_of_a_list_has_no_more_fields_than_fit_into_a_turn() -> None:
    job = repeats(b"\x18\x01", PARSE_TURN_BYTES + 2)  # its priority, again and again
    found = await parsed(pb.SubmitJobsRequest, field(1, job))

    assert isinstance(found, Unreadable)
    assert found.has_too_many_fields


async def test_map_of_a_request_has_bounded_entries() -> None:
    entries = b"".join(field(10, field(1, b"%06x" % number)) for number in range(66_000))
    found = await parsed(pb.ListJobsRequest, entries)

    assert isinstance(found, Unreadable)
    assert found.has_too_many_fields


async def test_request_that_unfolds_counts_as_a_large_one() -> None:
    jobs = pb.SubmitJobsRequest(
        jobs=[pb.SubmitJobRequest(topic="t", metadata={str(key): "" for key in range(60)})] * 1000
    )
    data = jobs.SerializeToString()

    assert len(data) < MIB < LARGE_REQUEST_BYTES < await Parser(pb.SubmitJobsRequest)(data).weigh()


async def test_line_refuses_repeats_that_merge_into_millions_of_jobs(server: ServerUnderTest) -> None:
    """Protobuf merges repeats: here, of requests of 120,000 empty jobs."""
    stream: Any = server.channel.stream_stream("/pulse.v1.PulseService/StreamSubmits")()
    await stream.write(repeats(field(2, repeats(field(1), 240_000)), 3 * MIB))
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have"):
        await stream.read()


async def test_filter_with_hundreds_of_thousands_of_entries_is_refused(server: ServerUnderTest) -> None:
    filters = b"".join(
        field(1, b"".join(field(7, field(1, b"%06x" % number)) for number in range(start, start + 15_000)))
        for start in range(0, 450_000, 15_000)
    )
    call: Any = server.channel.unary_unary("/pulse.v1.PulseService/CountJobs")
    with pytest.raises(grpc.aio.AioRpcError, match="has more entries than any call may have"):
        await call(filters)
