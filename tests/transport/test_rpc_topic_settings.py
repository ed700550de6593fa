"""Settings of topics over gRPC: declared by workers, overridden by operators, counted at the next submit."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker


def seconds(count: float) -> Duration:
    span = Duration()
    span.FromTimedelta(timedelta(seconds=count))
    return span


BACKOFF = pb.Backoff(first=seconds(2), factor=3, longest=seconds(3600), jitter=0.2)
A_DAY_OF_RETRIES = pb.Backoff(first=seconds(1), factor=2, longest=seconds(7200), jitter=0.2)
RUN = pb.TopicEntries(backoff=BACKOFF, max_attempts=8, attempt_timeout=seconds(120), max_crashes=2)


DAY = 24 * 60 * 60
FOREVER = pb.Keep(forever=True)
SERVER = pb.TopicEntries(
    max_attempts=25,
    max_crashes=5,
    backoff=A_DAY_OF_RETRIES,
    keep_completed=pb.Keep(duration=seconds(7 * DAY)),
    keep_canceled=pb.Keep(duration=seconds(7 * DAY)),
    keep_dead_lettered=pb.Keep(duration=seconds(30 * DAY)),
)


def over_the_server(**entries: Any) -> pb.TopicEntries:
    """What is in force with these entries."""
    found = pb.TopicEntries()
    found.CopyFrom(SERVER)
    for name in entries:
        found.ClearField(name)  # type: ignore[arg-type]
    found.MergeFrom(pb.TopicEntries(**entries))
    return found


def keep(span: float) -> pb.Keep:
    return pb.Keep(duration=seconds(span))


async def declare(
    stub: Any, worker_id: str = "worker-1", **topics: pb.TopicEntries
) -> list[pb.ReplacedDeclaration]:
    declared = [pb.DeclaredTopic(topic=topic, entries=entries) for topic, entries in topics.items()]
    request = pb.DeclareTopicsRequest(worker_id=worker_id, topics=declared)
    return list((await stub.DeclareTopics(request)).replaced)


async def override(stub: Any, *reset: str, topic: str = "mail", **entries: Any) -> pb.TopicSettings:
    request = pb.SetTopicRequest(
        topic=topic, entries=pb.TopicEntries(**entries) if entries else None, reset=reset
    )
    return (await stub.SetTopic(request)).settings  # type: ignore[no-any-return]


async def listed(stub: Any, **fields: Any) -> pb.ListTopicSettingsResponse:
    answer: pb.ListTopicSettingsResponse = await stub.ListTopicSettings(pb.ListTopicSettingsRequest(**fields))
    return answer


async def max_attempts_of_new_job(stub: Any, topic: str = "mail") -> int:
    submitted = await stub.SubmitJob(pb.SubmitJobRequest(topic=topic, payload=b"{}"))
    got = await stub.GetJob(pb.GetJobRequest(job_id=submitted.job_id))
    return got.job.max_attempts  # type: ignore[no-any-return]


async def test_jobs_have_25_attempts_unless_something_else_is_said(server: ServerUnderTest) -> None:
    assert await max_attempts_of_new_job(server.stub) == 25
    answer = await listed(server.stub)
    assert (list(answer.settings), answer.server) == ([], SERVER)


async def test_new_jobs_have_the_attempts_that_a_worker_declared(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)

    assert await max_attempts_of_new_job(server.stub) == 8
    assert await max_attempts_of_new_job(server.stub, "other") == 25


async def test_bulk_of_jobs_has_the_attempts_of_its_topic(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)
    columns = pb.JobColumns(
        options=pb.SubmitJobRequest(topic="mail"),
        job_ids=bytes(15) + b"\x01",
        payload_sizes=[2],
        payloads=b"{}",
    )
    await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=columns))

    got = await server.stub.GetJob(pb.GetJobRequest(job_id="00000000-0000-0000-0000-000000000001"))
    assert got.job.max_attempts == 8


async def test_operator_wins_until_they_return_the_entry(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)
    settings = await override(server.stub, max_attempts=50)
    assert settings.operator == pb.TopicEntries(max_attempts=50)
    assert settings.declared == RUN
    assert settings.in_force == over_the_server(
        backoff=BACKOFF, max_attempts=50, attempt_timeout=seconds(120), max_crashes=2
    )
    assert settings.decided_by["max_attempts"] == "operator"
    assert settings.decided_by["backoff"] == "code"
    assert settings.decided_by["keep_completed"] == "server"
    assert await max_attempts_of_new_job(server.stub) == 50

    settings = await override(server.stub, "max_attempts")
    assert not settings.HasField("operator")
    assert settings.decided_by["max_attempts"] == "code"
    assert await max_attempts_of_new_job(server.stub) == 8


async def test_settings_in_force_end_with_those_of_the_server(server: ServerUnderTest) -> None:
    settings = await override(server.stub, attempt_timeout=seconds(5))
    assert settings.in_force == over_the_server(attempt_timeout=seconds(5))


async def test_settings_of_a_topic_without_jobs_are_stored(server: ServerUnderTest) -> None:
    await override(server.stub, topic="audit", keep_completed=FOREVER, keep_dead_lettered=keep(DAY))

    (settings,) = (await listed(server.stub)).settings
    assert settings.topic == "audit"
    assert settings.operator == pb.TopicEntries(keep_completed=FOREVER, keep_dead_lettered=keep(DAY))
    assert settings.HasField("set_at")


async def test_change_leaves_what_it_does_not_name(server: ServerUnderTest) -> None:
    await override(server.stub, keep_completed=keep(DAY), running=5)
    settings = await override(server.stub, keep_canceled=keep(60), max_attempts=3)
    assert settings.operator == pb.TopicEntries(
        keep_completed=keep(DAY), running=5, keep_canceled=keep(60), max_attempts=3
    )


async def test_shortened_retention_is_shown_with_what_still_counts(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as server:
        settings = await override(server.stub, keep_dead_lettered=keep(DAY))
        assert settings.before == pb.TopicEntries(keep_dead_lettered=keep(30 * DAY))
        waits = settings.shorter_from.ToDatetime() - settings.set_at.ToDatetime()
        assert abs(waits - timedelta(hours=1)) < timedelta(minutes=1)
        settings = await override(server.stub, "keep_dead_lettered")
    assert not settings.HasField("before")
    assert not settings.HasField("shorter_from")


async def test_topic_without_an_entry_any_more_is_gone(server: ServerUnderTest) -> None:
    # Each is shorter than the server's: without them jobs are kept for longer, so there is no grace time.
    await override(server.stub, keep_completed=keep(DAY), keep_canceled=keep(DAY))
    assert (await override(server.stub, "keep_canceled")).HasField("set_at")
    settings = await override(server.stub, "keep_completed")

    assert settings.in_force == SERVER
    assert not settings.HasField("set_at")
    assert not (await listed(server.stub)).settings


async def test_settings_come_in_pages_by_topic(server: ServerUnderTest) -> None:
    for topic in ("c", "a", "b"):
        await override(server.stub, topic=topic, keep_completed=FOREVER)

    first = await listed(server.stub, page_size=2)
    rest = await listed(server.stub, page_size=2, page_token=first.next_page_token)

    assert [[each.topic for each in page.settings] for page in (first, rest)] == [["a", "b"], ["c"]]
    assert rest.next_page_token == ""
    assert [each.topic for each in (await listed(server.stub, topics=["b", "z"])).settings] == ["b"]


async def test_settings_show_the_user_who_set_them_last(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        admin, operator = caller(server.channel, "admin"), caller(server.channel, "operator")
        await override(admin, keep_completed=FOREVER)
        assert (await override(operator, keep_canceled=FOREVER)).set_by == "operator"
        (settings,) = (await listed(caller(server.channel, "viewer"))).settings
        assert settings.set_by == "operator"


async def test_longest_and_shortest_retention_are_accepted(server: ServerUnderTest) -> None:
    longest, shortest = timedelta(days=3650), timedelta(minutes=1)
    settings = await override(server.stub, keep_completed=keep(3650 * DAY), keep_canceled=keep(60))

    assert settings.operator.keep_completed.duration.ToTimedelta() == longest
    assert settings.operator.keep_canceled.duration.ToTimedelta() == shortest


async def test_unknown_page_token_is_refused(server: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(server.stub, page_token="%%%")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_worker_learns_which_declaration_it_replaced(server: ServerUnderTest) -> None:
    assert await declare(server.stub, "old", mail=RUN) == []
    assert await declare(server.stub, "other", mail=RUN) == []
    (replaced,) = await declare(server.stub, "new", mail=pb.TopicEntries(max_attempts=3))

    assert (replaced.topic, replaced.entries, replaced.declared_by) == ("mail", RUN, "old")
    assert replaced.HasField("declared_at")
    assert await declare(server.stub, "new", mail=RUN) == []


async def test_empty_declaration_takes_back_the_one_before(server: ServerUnderTest) -> None:
    await declare(server.stub, "old", mail=RUN)
    (replaced,) = await declare(server.stub, "new", mail=pb.TopicEntries())

    assert replaced.declared_by == "old"
    assert not (await listed(server.stub)).settings


async def test_declaration_reaches_the_other_servers(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as one, server_under_test(database_dsn) as other:
        await declare(one.stub, mail=RUN)
        await other.app.topics.settings.loop.wait_for_ticks(2)
        assert await max_attempts_of_new_job(other.stub) == 8


async def test_only_workers_declare_and_the_worker_is_their_users(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        worker = caller(server.channel, "worker")
        async with StreamingWorker(worker, "w1"):
            await declare(worker, "w1", mail=RUN)
        found = await listed(caller(server.channel, "viewer"))
        assert [each.declared_by for each in found.settings] == ["worker:w1"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await declare(caller(server.channel, "producer"), "w1", mail=RUN)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


A_BACKOFF = {"first": seconds(2), "longest": seconds(2), "factor": 2.0}


@each_row(
    "fields, text",
    [
        ({"topic": "", "entries": RUN}, "topic is empty"),
        ({"topic": "a b", "entries": RUN}, "topic"),
        ({}, "changes nothing"),
        ({"entries": pb.TopicEntries()}, "changes nothing"),
        ({"reset": ["attempts"]}, "'attempts' is no setting of a topic: the settings are running, rate"),
        ({"reset": ["attempt_timeout"], "entries": RUN}, "leave one of them out"),
    ],
)
async def test_change_that_cannot_be_made_is_refused_with_the_reason(
    server: ServerUnderTest, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.SetTopic(pb.SetTopicRequest(**{"topic": "mail", **fields}))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


@each_row(
    "entries, sentence",
    [
        ({"max_attempts": 0}, "max_attempts is 0: it must be from 1 to 1,000."),
        ({"max_crashes": 0}, "max_crashes is 0: it must be from 1 to 1,000."),
        ({"running": 1_000_001}, "running is 1000001: it must be from 1 to 1,000,000."),
        (
            {"attempt_timeout": seconds(0)},
            "attempt_timeout is 0:00:00: it must be above zero and",
        ),
        ({"attempt_timeout": seconds(3651 * DAY)}, "attempt_timeout is 3651d: it must be above zero"),
        ({"attempt_timeout": Duration(seconds=2**62)}, "attempt_timeout is not a valid duration"),
        ({"rate": pb.StartRate()}, "rate has 0 starts: they must be from 1 to 1,000,000."),
        ({"pool": "a b", "running": 1}, "pool 'a b' is not allowed"),
        (
            {"ordered": True, "per_lane": 2},
            "ordered needs one job of a lane at a time, and per_lane is 2",
        ),
        ({"pool": "gpu"}, "pool has neither running nor a rate to share: set one of them."),
        ({"backoff": pb.Backoff()}, "backoff has a first delay that is 0:00:00"),
        ({"backoff": pb.Backoff(first=seconds(2))}, "backoff has a longest delay that is 0:00:00"),
        ({"backoff": pb.Backoff(first=seconds(2), longest=seconds(2))}, "backoff has a factor of 0"),
        ({"backoff": pb.Backoff(**{**A_BACKOFF, "factor": float("nan")})}, "backoff has a factor of nan"),
        (
            {"backoff": pb.Backoff(**{**A_BACKOFF, "jitter": 1.5})},
            "backoff has a jitter of 1.5: it must be from",
        ),
    ],
)
async def test_entry_that_cannot_hold_is_refused_with_one_sentence_for_operators_and_workers(
    server: ServerUnderTest, entries: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as by_operator:
        await override(server.stub, **entries)
    with pytest.raises(grpc.aio.AioRpcError) as by_worker:
        await declare(server.stub, mail=pb.TopicEntries(**entries))

    for refused in (by_operator.value, by_worker.value):
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (refused.details() or "").startswith(sentence)


@each_row(
    "entries, text",
    [
        ({"keep_completed": keep(59)}, "keep_completed is 59s, below a minute"),
        ({"keep_canceled": keep(-DAY)}, "below a minute"),
        ({"keep_canceled": keep(0)}, "below a minute"),
        (
            {"keep_dead_lettered": keep(3651 * DAY)},
            "is longer than 3650 days: keep them forever",
        ),
        (
            {"keep_completed": pb.Keep(duration=Duration(seconds=2**62))},
            "is not a valid duration",
        ),
        ({"keep_completed": pb.Keep(forever=False)}, "keep_completed has neither a duration nor forever"),
        ({"keep_completed": pb.Keep()}, "keep_completed has neither a duration nor forever"),
    ],
)
async def test_retention_that_cannot_hold_is_refused_with_the_reason(
    server: ServerUnderTest, entries: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await override(server.stub, **entries)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


@each_row(
    "request_fields, text",
    [
        ({"topics": [pb.DeclaredTopic(topic="a")]}, "worker_id is empty"),
        ({"worker_id": "w", "topics": [pb.DeclaredTopic()]}, "topics.topic is empty"),
        ({"worker_id": "w", "topics": [pb.DeclaredTopic(topic="a")] * 2}, "twice"),
        ({"worker_id": "w", "topics": [pb.DeclaredTopic(topic="a")] * 1001}, "1000 are allowed"),
        (
            {
                "worker_id": "w",
                "topics": [pb.DeclaredTopic(topic="a", entries=pb.TopicEntries(keep_completed=FOREVER))],
            },
            "keep_completed cannot be declared in code: an operator sets it.",
        ),
    ],
)
async def test_declaration_that_cannot_hold_is_refused_with_the_reason(
    server: ServerUnderTest, request_fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.DeclareTopics(pb.DeclareTopicsRequest(**request_fields))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")
