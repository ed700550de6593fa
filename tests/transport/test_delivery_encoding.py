"""Deliveries as the server encodes them: what a worker reads is what protobuf would have sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import new_id
from pulse_server.dispatch.workers import Delivery
from pulse_server.jobs.rules import Claim, ClaimedJob, Progress, Step, StepKind
from pulse_server.topics.rules import Runs
from pulse_server.topics.service import TopicRules
from pulse_server.work import worker_rpcs
from pulse_server.work.worker_rpcs import DeliveryEncoder, assignment
from tests.fakes.topic_settings import FakeSettings, no_rules
from tests.rows import each_row

NUMBERS = st.one_of(st.integers(1, 5), st.integers(0, 2**31 - 1))
MOMENTS = st.datetimes(timezones=st.just(UTC))
PROGRESS = st.builds(
    Progress,
    fraction=st.none() | st.floats(0, 1),
    text=st.text(max_size=20),
    cursor=st.text(max_size=20),
    attempt=NUMBERS,
    reported_at=MOMENTS,
    since=st.none() | MOMENTS,
    since_fraction=st.floats(0, 1),
)
STEPS = st.builds(
    Step,
    name=st.text(max_size=10),
    attempt=NUMBERS,
    started_at=MOMENTS,
    stored_at=st.none() | MOMENTS,
    until=st.none() | MOMENTS,
    value=st.none() | st.binary(max_size=10),
    size=NUMBERS,
)
JOBS = st.builds(
    ClaimedJob,
    id=st.one_of(st.uuids().map(str), st.text(max_size=50)),
    topic=st.text(max_size=300),
    payload=st.one_of(st.binary(max_size=100), st.integers(0, 20_000).map(bytes)),
    attempt=NUMBERS,
    priority=st.one_of(st.just(0), st.integers(-(2**31), 2**31 - 1)),
    max_attempts=NUMBERS,
    metadata=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=1),
    idempotency_key=st.none() | st.text(max_size=20),
    worker_id=st.just("w1"),
    confirm=st.booleans(),
    waited_seconds=st.just(0.0),
    has_steps=st.none() | st.booleans(),
    run=st.integers(1, 5000),
    progress=st.none() | PROGRESS,
    steps=st.none() | st.lists(STEPS, max_size=2),
)


def plain_job(topic: str = "email", size: int = 50) -> ClaimedJob:
    return ClaimedJob(new_id(), topic, b"x" * size, 1, 1, 0, 5, None, None, "w1", False, 0.0)


@given(st.lists(JOBS, max_size=10))
def test_assignments_are_encoded_as_protobuf_encodes_them(jobs: list[ClaimedJob]) -> None:
    expected = pb.StreamJobsResponse(assignments=[assignment(job) for job in jobs])

    assert DeliveryEncoder(no_rules()).encode_assignments(jobs) == expected.SerializeToString()


@each_row(
    "change", [{"topic": ""}, {"id": "é" * 36}, {"payload": b""}, {"attempt": 0}, {"max_attempts": 5000}]
)
def test_what_protobuf_omits_or_encodes_longer_is_left_to_it(change: dict[str, Any]) -> None:
    job = plain_job()._replace(**change)
    expected = pb.StreamJobsResponse(assignments=[assignment(job)])

    assert DeliveryEncoder(no_rules()).encode_assignments([job]) == expected.SerializeToString()


@given(
    st.builds(
        Delivery,
        jobs=st.lists(JOBS, max_size=3).map(tuple),
        claimed_at=st.floats(0, 1e9),
        stops=st.lists(
            st.builds(Claim, st.uuids().map(str), st.just("w1"), st.integers(1, 9), st.integers(1, 9))
        ).map(tuple),
        recalled=st.none() | st.frozensets(st.text(max_size=5), max_size=3),
        is_last=st.booleans(),
    )
)
def test_delivery_is_read_as_the_message_that_protobuf_would_make(delivery: Delivery) -> None:
    read = pb.StreamJobsResponse.FromString(DeliveryEncoder(no_rules()).encode(delivery))

    assert read == pb.StreamJobsResponse(
        assignments=[assignment(job) for job in delivery.jobs],
        clock_seconds=delivery.claimed_at,
        stop=[
            pb.Claim(job_id=job_id, attempt=attempt, run=run) for job_id, _, attempt, run in delivery.stops
        ],
        draining=delivery.is_last,
        recall=None if delivery.recalled is None else pb.Recall(topics=sorted(delivery.recalled)),
    )


def test_steps_of_a_woken_job_go_with_it() -> None:
    now = datetime.now(UTC)
    step = Step("fetch", StepKind.STEP, 1, now, now, None, None, b"1", 1)
    job = plain_job()._replace(has_steps=True, steps=[step])
    read = pb.StreamJobsResponse.FromString(DeliveryEncoder(no_rules()).encode_assignments([job]))
    (sent,) = read.assignments[0].steps.steps
    assert (sent.name, sent.kind, sent.value) == ("fetch", "step", b"1")
    none = assignment(plain_job()._replace(has_steps=True, steps=[]))
    assert none.HasField("steps")
    assert not assignment(plain_job()).HasField("steps")


def test_plain_delivery_is_encoded_without_a_message() -> None:
    """Byte for byte: the clock is the only field besides the jobs."""
    delivery = Delivery((plain_job(), plain_job(size=5000)), 12.5)
    expected = pb.StreamJobsResponse(
        assignments=[assignment(job) for job in delivery.jobs], clock_seconds=12.5
    )

    assert DeliveryEncoder(no_rules()).encode(delivery) == expected.SerializeToString()


def test_encoder_keeps_the_bytes_of_a_bounded_number_of_topics() -> None:
    encoder = DeliveryEncoder(no_rules())
    jobs = [plain_job(f"topic-{number}") for number in range(worker_rpcs._TOPICS_KEPT + 5)]

    read = pb.StreamJobsResponse.FromString(encoder.encode_assignments(jobs))

    assert [one.topic for one in read.assignments] == [job.topic for job in jobs]
    assert len(encoder._topics) <= worker_rpcs._TOPICS_KEPT


def timeouts(data: bytes) -> list[tuple[str, float]]:
    read = pb.StreamJobsResponse.FromString(data).assignments
    return [(job.topic, job.timeout.ToTimedelta().total_seconds()) for job in read]


async def test_assignments_have_the_time_limit_of_their_topic_as_it_is_now() -> None:
    repo = FakeSettings()
    rules = TopicRules(cast(Any, repo), {"max_attempts": 25})
    encoder = DeliveryEncoder(rules)
    jobs = [plain_job("mail"), plain_job("sms"), plain_job("mail")._replace(priority=1)]
    assert timeouts(encoder.encode_assignments(jobs)) == [("mail", 0), ("sms", 0), ("mail", 0)]

    repo.rules = {"mail": Runs(None, False, timedelta(seconds=1.5))}
    await rules.refresh()
    assert timeouts(encoder.encode_assignments(jobs)) == [("mail", 1.5), ("sms", 0), ("mail", 1.5)]

    repo.rules = {}
    await rules.refresh()
    assert timeouts(encoder.encode_assignments(jobs)) == [("mail", 0), ("sms", 0), ("mail", 0)]


@given(st.lists(JOBS, max_size=10))
def test_time_limit_of_the_settings_is_that_of_every_topic(jobs: list[ClaimedJob]) -> None:
    encoder = DeliveryEncoder(no_rules(attempt_timeout=timedelta(minutes=2)))
    read = pb.StreamJobsResponse.FromString(encoder.encode_assignments(jobs)).assignments

    assert [job.timeout.seconds for job in read] == [120] * len(jobs)
    for job in read:
        job.ClearField("timeout")
    assert list(read) == [assignment(job) for job in jobs]
