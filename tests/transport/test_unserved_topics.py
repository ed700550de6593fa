"""Callers get a note when no worker of any server takes the topic of their jobs."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role, User
from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.workers import Backlog, Session
from pulse_server.topics.rpcs import MOST_NOTES, Note, UnservedTopics
from tests.fakes.wakeups import FakeWakeupLine
from tests.rows import each_row
from tests.transport.authorized import PASSWORD, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

NOTE = "No worker that takes {!r} is connected: its jobs wait until one is."
MEANT = NOTE + " Did you mean {!r}?"


@pytest.fixture
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A server that has been there for a while."""
    monkeypatch.setattr("pulse_server.topics.rpcs.LOOK_TIMEOUT", timedelta(seconds=20))
    async with server_under_test(database_dsn) as server:
        server.app.topics.unserved._quiet_until = 0.0
        yield server


@each_row(
    "role, expected",
    [
        (Role.PRODUCER, NOTE.format("orders.confrim")),
        (Role.WORKER, NOTE.format("orders.confrim")),
        (Role.OPERATOR, MEANT.format("orders.confrim", "orders.confirm")),
    ],
)
async def test_role_that_may_not_list_topics_learns_no_other_name(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, role: Role, expected: str
) -> None:
    monkeypatch.setattr("pulse_server.topics.rpcs.LOOK_TIMEOUT", timedelta(seconds=20))
    users = (User("shop", PASSWORD, Role.WORKER), User("ada", PASSWORD, role))
    async with server_under_test(database_dsn, users=users) as server:
        server.app.topics.unserved._quiet_until = 0.0
        ada = caller(server.channel, "ada")
        async with StreamingWorker(caller(server.channel, "shop"), "w1", topics=["orders.confirm"]):
            answer = await ada.SubmitJobs(submit_of("orders.confrim"))
            job = (await ada.GetJob(pb.GetJobRequest(job_id=answer.results[0].job_id))).job
    assert [answer.no_worker[0].note, job.no_worker] == [expected, expected]


def submit_of(*topics: str) -> pb.SubmitJobsRequest:
    return pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic=topic) for topic in topics])


async def test_submit_notes_a_topic_that_no_worker_ever_took(server: ServerUnderTest) -> None:
    async with server.worker(topics=["orders.confirm"]):
        answer = await server.stub.SubmitJobs(submit_of("orders.confrim", "orders.confirm", "orders.confrim"))
    assert [job.refusal.code for job in answer.results] == [0, 0, 0]
    (note,) = answer.no_worker
    assert (note.topic, note.note) == (
        "orders.confrim",
        MEANT.format("orders.confrim", "orders.confirm"),
    )
    # Its worker is gone for the moment, which a deploy does too.
    assert not (await server.stub.SubmitJobs(submit_of("orders.confirm"))).no_worker


async def test_columns_are_noted_too(server: ServerUnderTest) -> None:
    options = pb.SubmitJobRequest(topic="mail")
    columns = pb.JobColumns(options=options, job_ids=bytes(range(16)), payload_sizes=[0])
    answer = await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=columns))
    assert [note.note for note in answer.no_worker] == [NOTE.format("mail")]


async def test_waiting_job_is_noted_while_no_worker_is_connected(server: ServerUnderTest) -> None:
    job_id = await server.submit("mail")
    assert (await server.get(job_id)).no_worker == NOTE.format("mail")
    async with server.worker(topics=["mail"]) as worker:
        job = await worker.take_one()
        assert (await server.get(job_id)).no_worker == ""
        await worker.complete(job)
    assert (await server.get(job_id)).no_worker == ""


async def test_schedule_of_a_topic_without_workers_is_noted(server: ServerUnderTest) -> None:
    request = pb.CreateScheduleRequest(topic="nightly", cron="@daily", name="n")
    answer = await server.stub.CreateSchedule(request)
    assert [note.note for note in answer.no_worker] == [NOTE.format("nightly")]


async def test_workers_of_another_server_count(server: ServerUnderTest, database_dsn: str) -> None:
    async with server_under_test(database_dsn) as other, other.worker(topics=["mail"]):
        await other.app.views.servers.record()
        assert not (await server.stub.SubmitJobs(submit_of("mail"))).no_worker
        assert (await server.get(await server.submit("mail"))).no_worker == ""
        answer = await server.stub.SubmitJobs(submit_of("mial"))
        assert [note.note for note in answer.no_worker] == [MEANT.format("mial", "mail")]


# ---------------------------------------------------------------- the notes


class Servers:
    """The workers of all servers."""

    def __init__(self, *topics: str) -> None:
        self.topics = Counter(topics)
        self.is_away = False
        self.looks = 0

    async def workers_by_topic(self) -> Counter[str]:
        self.looks += 1
        if self.is_away:
            raise Unavailable("The database does not answer.")
        return self.topics


def notes_over(
    servers: Servers, *, started: float = 0.0, now: float = 100.0
) -> tuple[UnservedTopics, Roster]:
    roster = Roster(timedelta(seconds=30), FakeWakeupLine())
    moments = iter([started])
    unserved = UnservedTopics(
        roster.demand,
        servers.workers_by_topic,
        clock=lambda: next(moments, now),
        start_grace=timedelta(seconds=10),
    )
    return unserved, roster


async def test_server_that_just_started_notes_nothing() -> None:
    """Its workers are on their way."""
    unserved, _ = notes_over(Servers(), now=9.0)
    assert await unserved.notes_of_new(["mail"]) == {}
    unserved, _ = notes_over(Servers(), now=11.0)
    assert await unserved.notes_of_new(["mail"]) == {"mail": Note(NOTE.format("mail"), "")}


async def test_database_that_is_away_costs_the_note_alone() -> None:
    servers = Servers()
    servers.is_away = True
    unserved, _ = notes_over(servers)
    assert (await unserved.notes_of_new(["mail"]), await unserved.note("mail")) == ({}, None)
    assert servers.looks == 1, "or every submit waits behind a slow database"


async def test_notes_of_one_answer_are_few() -> None:
    unserved, _ = notes_over(Servers())
    assert len(await unserved.notes_of_new(f"t{number}" for number in range(1000))) == MOST_NOTES


async def test_topic_that_had_a_worker_is_noted_for_a_wait_only() -> None:
    unserved, roster = notes_over(Servers())
    session = Session(
        "w", frozenset({"mail"}), 1, speaks_batches=True, run_id="", backlog=Backlog(lambda: None)
    )
    roster.add(session, [])
    assert await unserved.note("mail") is None
    roster.remove(session)
    assert await unserved.notes_of_new(["mail"]) == {}
    assert await unserved.note("mail") == Note(NOTE.format("mail"), "")


@each_row(
    "topic, meant",
    [
        ("orders.confrim", "orders.confirm"),
        ("order.confirm", "orders.confirm"),
        ("Orders.confirm", "orders.confirm"),
        ("orders.cancel", None),
        ("x", None),
        ("orders.confirm.all.of.them", None),
    ],
)
async def test_similar_topic_is_named(topic: str, meant: str | None) -> None:
    unserved, _ = notes_over(Servers("orders.confirm", "mail", "sms"))
    assert await unserved.note(topic) == Note(NOTE.format(topic), meant or "")
