"""SubmitJobs with columns: jobs that share their options."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.bounds import MAX_PAYLOAD_BYTES
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import wire_duration

IDS = [f"0190f3a0-0000-7000-8000-{number:012x}" for number in range(2500)]
OF_A_FIRE = "0190f3a0-0000-5000-8000-000000000001"


def columns(payloads: list[bytes], ids: list[str] = IDS, **options: Any) -> pb.JobColumns:
    return pb.JobColumns(
        options=pb.SubmitJobRequest(**{"topic": "mail", **options}),
        job_ids=b"".join(UUID(job_id).bytes for job_id in ids[: len(payloads)]),
        payload_sizes=map(len, payloads),
        payloads=b"".join(payloads),
    )


def rows(payloads: list[bytes], ids: list[str] = IDS, **options: Any) -> list[pb.SubmitJobRequest]:
    return [
        pb.SubmitJobRequest(**{"topic": "mail", **options}, job_id=job_id, payload=payload)
        for job_id, payload in zip(ids, payloads, strict=False)
    ]


async def submit(server: ServerUnderTest, given: pb.JobColumns) -> pb.SubmitJobsResponse:
    return await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=given))


async def test_jobs_in_columns_are_stored_with_payloads_and_options(
    server: ServerUnderTest,
) -> None:
    given = columns(
        [b"one", b"", b"\x00\xff"],
        priority=-7,
        max_attempts=9,
        delay=wire_duration(timedelta(minutes=5)),
        metadata={"trace": "ä\U0001f600"},
    )
    answer = await submit(server, given)
    jobs = [await server.get(job_id) for job_id in IDS[:3]]
    assert answer == pb.SubmitJobsResponse(all_inserted=True, submitted_at=jobs[0].submitted_at)
    assert [job.payload for job in jobs] == [b"one", b"", b"\x00\xff"]
    for job in jobs:
        assert (job.topic, job.priority, job.max_attempts) == ("mail", -7, 9)
        assert dict(job.metadata) == {"trace": "ä\U0001f600"}
        assert timedelta(minutes=5) <= job.next_run_at.ToDatetime() - job.submitted_at.ToDatetime()


async def test_columns_larger_than_one_statement_are_inserted(server: ServerUnderTest) -> None:
    payloads = [b"%d" % number for number in range(2500)]
    answer = await submit(server, columns(payloads))
    assert (answer.all_inserted, len(answer.results), answer.HasField("submitted_at")) == (True, 0, True)
    assert await server.table.count() == 2500
    assert (await server.get(IDS[1500])).payload == b"1500"


async def test_columns_sent_again_are_duplicates(server: ServerUnderTest) -> None:
    await submit(server, columns([b"1", b"2"]))
    answer = await submit(server, columns([b"1", b"2", b"3"]))
    assert [(result.job_id, result.duplicate) for result in answer.results] == [
        (IDS[0], True),
        (IDS[1], True),
        (IDS[2], False),
    ]
    assert await server.table.count() == 3


async def test_columns_sent_again_after_their_jobs_completed_are_duplicates(server: ServerUnderTest) -> None:
    async with server.worker(topics=["mail"], capacity=10) as worker:
        await submit(server, columns([b"1", b"2"]))
        await worker.complete(*await worker.take(2))
    answer = await submit(server, columns([b"1", b"2", b"3"]))
    assert [(result.job_id, result.duplicate) for result in answer.results] == [
        (IDS[0], True),
        (IDS[1], True),
        (IDS[2], False),
    ]
    assert (await server.get(IDS[0])).status == "COMPLETED"


async def test_workers_get_jobs_of_columns(server: ServerUnderTest) -> None:
    async with server.worker(topics=["mail"], capacity=10) as worker:
        await submit(server, columns([b"1", b"2", b"3"]))
        assert {job.payload for job in await worker.take(3)} == {b"1", b"2", b"3"}


@each_row(
    "asked",
    [
        {"payloads": [b"a", b"b"], "topic": "not a topic"},
        {"payloads": [b"a", b"b"], "max_attempts": 0},
        {"payloads": [b"a", b"b"], "metadata": {"nul": "\0"}},
        {"payloads": [b"a", bytes(MAX_PAYLOAD_BYTES + 1), b"c"]},
        {"payloads": [b"a", b"b", b"c"], "ids": [IDS[0], OF_A_FIRE, IDS[1]]},
        {"payloads": [b"a", b"b"], "ids": [IDS[0], IDS[0]]},
    ],
)
async def test_refused_job_of_columns_has_the_sentence_that_it_has_alone(
    server: ServerUnderTest, asked: dict[str, Any]
) -> None:
    await server.table.connection.execute("DELETE FROM pulse.jobs")
    by_rows = await server.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=rows(**asked)))
    stored = await server.table.count()
    await server.table.connection.execute("DELETE FROM pulse.jobs")
    assert _without_moments(await submit(server, columns(**asked))) == _without_moments(by_rows)
    assert await server.table.count() == stored


def _without_moments(answer: pb.SubmitJobsResponse) -> pb.SubmitJobsResponse:
    for result in answer.results:
        result.ClearField("submitted_at")
    return answer


def _sizes(given: pb.JobColumns) -> None:
    given.payload_sizes.append(1)


def _ids(given: pb.JobColumns) -> None:
    given.job_ids += b"x"


def _payloads(given: pb.JobColumns) -> None:
    given.payloads += b"x"


def _key(given: pb.JobColumns) -> None:
    given.options.idempotency_key = "once"


def _id(given: pb.JobColumns) -> None:
    given.options.job_id = IDS[0]


def _many(given: pb.JobColumns) -> None:
    given.payload_sizes.extend([0] * 10_000)


def _bytes(given: pb.JobColumns) -> None:
    given.CopyFrom(columns([bytes(1000)] * 2000, metadata={"x": "y" * 8000}))


@each_row(
    "spoil, sentence",
    [
        (_sizes, "columns.job_ids has 32 bytes, but 3 jobs need 48: 16 for each."),
        (_ids, "columns.job_ids has 33 bytes, but 2 jobs need 32: 16 for each."),
        (_payloads, "columns.payloads has 3 bytes, but payload_sizes adds up to 2."),
        (_key, "columns.options.idempotency_key is given: each job has its own."),
        (_id, "columns.options.job_id is given: each job has its own."),
        (_many, "columns.payload_sizes has 10002 entries; 10000 are allowed at the most."),
        (
            _bytes,
            "the options of each job included; 8388608 are allowed at the most. Send fewer jobs at a time.",
        ),
    ],
)
async def test_columns_that_do_not_make_up_jobs_are_refused_as_a_whole(
    server: ServerUnderTest, spoil: Callable[[pb.JobColumns], None], sentence: str
) -> None:
    given = columns([b"a", b"b"])
    spoil(given)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await submit(server, given)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in str(caught.value.details())
    assert await server.table.count() == 0


async def test_columns_and_jobs_in_one_request_are_refused(server: ServerUnderTest) -> None:
    both = pb.SubmitJobsRequest(columns=columns([b"a"]), jobs=rows([b"b"], IDS[1:]))
    with pytest.raises(
        grpc.aio.AioRpcError, match="columns and jobs are both given: send them in two requests"
    ):
        await server.stub.SubmitJobs(both)
    assert await server.table.count() == 0


async def test_columns_without_jobs_are_no_error(server: ServerUnderTest) -> None:
    assert await submit(server, columns([])) == pb.SubmitJobsResponse(all_inserted=True)
