"""SubmitJob and SubmitJobs."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.schedules.rules import fire_id
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import wire_duration

AN_ID = "0190f3a0-0000-7000-8000-000000000001"
ANOTHER_ID = "0190f3a0-0000-7000-8000-000000000002"


def timestamp(moment: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(moment)
    return message


async def test_submitted_job_is_stored_with_everything_that_was_given(server: ServerUnderTest) -> None:
    run_at = datetime(2100, 1, 1, tzinfo=UTC)
    answer = await server.stub.SubmitJob(
        pb.SubmitJobRequest(
            topic="mail",
            payload=b"\x00\xff",
            priority=-7,
            job_id=AN_ID,
            idempotency_key="once",
            run_at=timestamp(run_at),
            max_attempts=9,
            metadata={"trace": "ä\U0001f600", "": "empty key"},
        )
    )
    job = await server.get(AN_ID)
    assert answer == pb.SubmitJobResponse(job_id=AN_ID, duplicate=False, submitted_at=job.submitted_at)
    assert (job.status, job.topic, job.payload, job.priority) == ("PENDING", "mail", b"\x00\xff", -7)
    assert (job.attempts, job.max_attempts, job.idempotency_key) == (0, 9, "once")
    assert dict(job.metadata) == {"trace": "ä\U0001f600", "": "empty key"}
    assert job.next_run_at.ToDatetime(tzinfo=UTC) == run_at


async def test_job_without_an_id_gets_one_of_the_server(server: ServerUnderTest) -> None:
    first, second = await server.submit(), await server.submit()
    assert first != second
    assert (await server.get(first)).max_attempts == 25


async def test_delay_counts_from_the_submission(server: ServerUnderTest) -> None:
    job = await server.get(await server.submit(delay=wire_duration(timedelta(minutes=5))))
    waits = job.next_run_at.ToDatetime() - job.submitted_at.ToDatetime()
    assert timedelta(minutes=5) <= waits < timedelta(minutes=5, seconds=1)


async def test_same_id_and_content_again_is_a_duplicate(server: ServerUnderTest) -> None:
    request = pb.SubmitJobRequest(topic="mail", payload=b"x", job_id=AN_ID)
    first = await server.stub.SubmitJob(request)
    assert not first.duplicate
    again = pb.SubmitJobResponse(job_id=AN_ID, duplicate=True, submitted_at=first.submitted_at)
    assert await server.stub.SubmitJob(request) == again
    assert await server.table.count() == 1


async def test_same_key_and_content_again_answers_with_the_first_job(server: ServerUnderTest) -> None:
    request = pb.SubmitJobRequest(topic="mail", payload=b"x", idempotency_key="once")
    first = await server.stub.SubmitJob(request)
    again = pb.SubmitJobResponse(job_id=first.job_id, duplicate=True, submitted_at=first.submitted_at)
    assert await server.stub.SubmitJob(request) == again
    assert await server.table.count() == 1


async def test_same_key_in_another_topic_is_another_job(server: ServerUnderTest) -> None:
    first = await server.submit("mail", idempotency_key="once")
    assert await server.submit("image", idempotency_key="once") != first


@pytest.mark.parametrize(
    ("name", "field"), [(AN_ID, "job_id"), ("once", "idempotency_key")], ids=["id", "key"]
)
async def test_taken_name_with_other_content_already_exists(
    server: ServerUnderTest, name: str, field: str
) -> None:
    first = await server.submit(payload=b"x", **{field: name})
    before = await server.table.everything()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.submit(payload=b"y", **{field: name})
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert field in str(caught.value.details())
    assert first in str(caught.value.details())
    assert await server.table.everything() == before


async def test_upper_case_id_names_the_same_job(server: ServerUnderTest) -> None:
    await server.submit(job_id=AN_ID)
    assert await server.submit(job_id=AN_ID.upper()) == AN_ID
    assert (await server.get(AN_ID.upper())).job_id == AN_ID


async def test_bad_job_of_a_batch_is_refused_and_its_neighbors_are_not(server: ServerUnderTest) -> None:
    await server.submit(job_id=AN_ID, payload=b"taken")
    answer = await server.stub.SubmitJobs(
        pb.SubmitJobsRequest(
            jobs=[
                pb.SubmitJobRequest(topic="mail", job_id=ANOTHER_ID),
                pb.SubmitJobRequest(topic="not a topic"),
                pb.SubmitJobRequest(topic="mail", job_id=AN_ID, payload=b"other"),
                pb.SubmitJobRequest(topic="mail", job_id=AN_ID, payload=b"taken"),
                pb.SubmitJobRequest(topic="mail"),
            ]
        )
    )
    good, bad, taken, again, last = answer.results
    assert (good.job_id, good.duplicate, good.HasField("refusal")) == (ANOTHER_ID, False, False)
    assert bad.refusal.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert bad.refusal.message.startswith("topic ")
    assert taken.refusal.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    stored = (await server.get(AN_ID)).submitted_at
    assert again == pb.SubmitResult(job_id=AN_ID, duplicate=True, submitted_at=stored)
    assert last.job_id
    assert not last.HasField("refusal")
    assert await server.table.count() == 3


async def test_same_job_twice_in_a_batch_is_inserted_once(server: ServerUnderTest) -> None:
    twice = pb.SubmitJobRequest(topic="mail", job_id=AN_ID)
    answer = await server.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=[twice, twice]))
    assert [result.duplicate for result in answer.results] == [False, True]
    assert await server.table.count() == 1


async def test_empty_batch_is_answered_with_nothing(server: ServerUnderTest) -> None:
    assert not (await server.stub.SubmitJobs(pb.SubmitJobsRequest())).results


async def test_batch_larger_than_one_statement_is_answered_in_order(server: ServerUnderTest) -> None:
    ids = [f"0190f3a0-0000-7000-8000-{number:012x}" for number in range(2500)]
    jobs = [pb.SubmitJobRequest(topic="mail", job_id=job_id) for job_id in ids]
    answer = await server.stub.SubmitJobs(pb.SubmitJobsRequest(jobs=jobs))
    assert [result.job_id for result in answer.results] == ids
    assert await server.table.count() == 2500


async def test_id_of_a_fire_cannot_be_taken(server: ServerUnderTest) -> None:
    """Such ids are predictable for every caller that may read schedules."""
    schedule = pb.CreateScheduleRequest(topic="mail", every=wire_duration(timedelta(hours=1)))
    made = (await server.stub.CreateSchedule(schedule)).schedule
    taken = fire_id(made.schedule_id, made.next_run_at.ToDatetime(tzinfo=UTC))
    for attempt in (
        server.stub.SubmitJob(pb.SubmitJobRequest(topic="junk", job_id=taken)),
        server.stub.SubmitJob(pb.SubmitJobRequest(topic="junk", job_id=taken.upper().replace("-", ""))),
        server.stub.FireSchedule(pb.FireScheduleRequest(schedule_id=made.schedule_id, job_id=taken)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "job_id is a UUID of version 5" in (refused.value.details() or "")


def submits(*job_ids: str) -> pb.SubmitJobsRequest:
    jobs = [pb.SubmitJobRequest(topic="mail", job_id=job_id) for job_id in job_ids]
    return pb.SubmitJobsRequest(jobs=jobs, brief=True)


async def test_brief_answer_says_only_that_all_were_inserted(server: ServerUnderTest) -> None:
    answer = await server.stub.SubmitJobs(submits(AN_ID, ANOTHER_ID))
    first = (await server.get(AN_ID)).submitted_at
    assert answer == pb.SubmitJobsResponse(all_inserted=True, submitted_at=first)
    assert await server.table.count() == 2


@pytest.mark.parametrize(
    "job",
    [
        pb.SubmitJobRequest(topic="mail", job_id=AN_ID),
        pb.SubmitJobRequest(topic="mail", job_id=AN_ID.upper().replace("1", "A")),
        pb.SubmitJobRequest(topic="mail"),
        pb.SubmitJobRequest(topic="not a topic", job_id=AN_ID),
    ],
    ids=["duplicate", "written otherwise", "without an id", "refused"],
)
async def test_brief_request_is_answered_in_full_when_there_is_more_to_say(
    server: ServerUnderTest, job: pb.SubmitJobRequest
) -> None:
    await server.submit(job_id=AN_ID)
    request = submits(ANOTHER_ID)
    request.jobs.append(job)
    answer = await server.stub.SubmitJobs(request)
    assert not answer.all_inserted
    assert [bool(result.job_id) for result in answer.results] == [True, job.topic == "mail"]
