"""The change log: one event for each call that changes something, and for no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors.callers import is_change
from tests.eventually import eventually
from tests.transport.authorized import METHODS, USERS, answer, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

FIELDS = {
    "user",
    "role",
    "address",
    "method",
    "ids",
    "filter",
    "asked",
    "count",
    "reason",
    "outcome",
    "refusal",
}


@pytest.fixture
async def guarded(database_dsn: str, caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServerUnderTest]:
    caplog.set_level("INFO")
    async with server_under_test(database_dsn, users=USERS) as server:
        yield server


def changes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the events so far, without the standard fields of a log record."""
    return [
        {key: value for key, value in vars(record).items() if key in FIELDS}
        for record in caplog.records
        if record.message == "change"
    ]


def test_method_that_is_neither_a_read_nor_frequent_is_a_change() -> None:
    assert {method.name for method in METHODS if is_change(method.name)} == {
        "CancelJob",
        "RetryJob",
        "PrioritizeJob",
        "DeleteJob",
        "CancelJobs",
        "RetryJobs",
        "PrioritizeJobs",
        "DeleteJobs",
        "UndoAction",
        "CreateSchedule",
        "DeclareSchedules",
        "UpdateSchedule",
        "PauseSchedule",
        "ResumeSchedule",
        "FireSchedule",
        "DeleteSchedule",
        "PauseDispatch",
        "ResumeDispatch",
        "SetWorkerState",
        "SetTopic",
        "DeclareTopics",
        "HoldTopic",
        "SetLane",
        "SignalJob",
        "CancelWorkflow",
        "RetryWorkflow",
    }
    assert is_change("SomethingNew"), "none can be forgotten"


async def test_each_call_that_changes_something_is_one_event(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    admin = caller(guarded.channel, "admin")
    for method in METHODS:
        caplog.clear()
        code, _ = await answer(admin, method.name)
        events = changes(caplog)
        if not is_change(method.name):
            assert events == [], method.name
            continue
        (event,) = events
        assert (event["user"], event["role"], event["address"]) == ("admin", "admin", "127.0.0.1")
        assert (event["method"], event["outcome"]) == (method.name, code.name)


async def test_change_of_one_job_names_it_and_the_reason(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    operator = caller(guarded.channel, "operator")
    submitted = await operator.SubmitJob(pb.SubmitJobRequest(topic="mail", payload=b"secret"))
    job_id = submitted.job_id
    caplog.clear()

    await operator.PrioritizeJob(pb.PrioritizeJobRequest(job_id=job_id, priority=9, reason="ticket 4711"))
    await operator.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="sent twice"))
    await answer(operator, "DeleteJob", pb.DeleteJobRequest(job_id=job_id))
    await answer(operator, "DeleteJob", pb.DeleteJobRequest(job_id=job_id))

    by = {"user": "operator", "role": "operator", "address": "127.0.0.1", "ids": [job_id]}
    done = {**by, "count": 1, "outcome": "OK"}
    assert changes(caplog) == [
        {**done, "method": "PrioritizeJob", "reason": "ticket 4711", "asked": {"priority": 9}},
        {**done, "method": "CancelJob", "reason": "sent twice"},
        {**done, "method": "DeleteJob"},
        {
            **by,
            "method": "DeleteJob",
            "count": 0,
            "outcome": "NOT_FOUND",
            "refusal": f"There is no job {job_id}.",
        },
    ]


async def test_bulk_action_names_the_filter_and_how_many(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    operator = caller(guarded.channel, "operator")
    for _ in range(3):
        await operator.SubmitJob(pb.SubmitJobRequest(topic="mail"))
    caplog.clear()

    which = pb.JobFilter(topic="mail")
    await operator.PrioritizeJobs(pb.PrioritizeJobsRequest(filter=which, priority=5, reason="fair", limit=2))
    await operator.CancelJobs(pb.CancelJobsRequest(filter=which, reason="wrong file"))
    await operator.DeleteJobs(pb.DeleteJobsRequest(filter=pb.JobFilter(topic="mail", status="CANCELED")))

    by = {"user": "operator", "role": "operator", "address": "127.0.0.1", "outcome": "OK"}
    mail = {**by, "filter": {"topic": "mail"}}
    assert changes(caplog) == [
        {**mail, "method": "PrioritizeJobs", "reason": "fair", "asked": {"priority": 5}, "count": 2},
        {**mail, "method": "CancelJobs", "reason": "wrong file", "count": 3},
        {**by, "method": "DeleteJobs", "filter": {"topic": "mail", "status": "CANCELED"}, "count": 3},
    ]


async def test_action_of_several_calls_is_counted_once(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    operator, token, action_id = caller(guarded.channel, "operator"), "", str(uuid4())
    jobs = [(await operator.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id for _ in range(7)]
    caplog.clear()
    for _ in range(4):
        batch = await operator.CancelJobs(
            pb.CancelJobsRequest(
                filter=pb.JobFilter(topic="mail"), limit=2, page_token=token, action_id=action_id
            )
        )
        token = batch.next_page_token
    assert not token
    again = str(uuid4())
    for job_id in jobs[:3]:
        await operator.RetryJob(pb.RetryJobRequest(job_id=job_id, action_id=again))

    assert [(event["method"], event["count"]) for event in changes(caplog)] == [
        ("CancelJobs", 2),
        *[("RetryJob", 1)] * 3,
    ]
    ended = [vars(record)["count"] for record in caplog.records if record.message == "change_ended"]
    assert ended == [7]
    counted = guarded.app.metrics.changes.values
    assert (counted["CancelJobs", "OK"], counted["RetryJob", "OK"]) == (1, 1)


async def test_schedules_and_pauses_are_named_without_what_they_carry(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    producer, operator = caller(guarded.channel, "producer"), caller(guarded.channel, "operator")
    made = await producer.CreateSchedule(
        pb.CreateScheduleRequest(
            topic="mail", payload=b"secret", cron="@daily", name="daily", metadata={"card": "4111"}
        )
    )
    fired = await operator.FireSchedule(pb.FireScheduleRequest(schedule_id=made.schedule_id))
    await operator.PauseDispatch(pb.PauseDispatchRequest(topic="mail", reason="the mail server is down"))
    await operator.ResumeDispatch(pb.ResumeDispatchRequest(topic="mail"))

    by = {"user": "operator", "role": "operator", "address": "127.0.0.1", "count": 1, "outcome": "OK"}
    assert changes(caplog) == [
        {
            **by,
            "user": "producer",
            "role": "producer",
            "method": "CreateSchedule",
            "ids": [made.schedule_id],
            "asked": {"topic": "mail", "cron": "@daily", "name": "daily"},
        },
        {**by, "method": "FireSchedule", "ids": [made.schedule_id, fired.job_id]},
        {
            **by,
            "method": "PauseDispatch",
            "reason": "the mail server is down",
            "asked": {"topic": "mail"},
        },
        {**by, "method": "ResumeDispatch", "asked": {"topic": "mail"}},
    ]
    assert "secret" not in caplog.text
    assert "4111" not in caplog.text


async def test_long_texts_are_cut(guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    operator = caller(guarded.channel, "operator")
    await answer(operator, "PauseDispatch", pb.PauseDispatchRequest(reason="x" * 100_000))
    await answer(operator, "CancelJob", pb.CancelJobRequest(job_id="y" * 100_000))

    pause, cancel = changes(caplog)
    assert pause["reason"] == "x" * 500
    assert len(str(cancel)) < 2000


async def test_caller_that_disconnects_is_recorded(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Its change may have been committed."""
    operator = caller(guarded.channel, "operator")
    await operator.WhoAmI(pb.WhoAmIRequest())
    lock = "BEGIN; LOCK pulse.topic_settings"  # a change of it waits for longer than its caller
    await guarded.table.connection.execute(lock)
    try:
        with pytest.raises(grpc.aio.AioRpcError):
            await operator.SetTopic(
                pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(max_attempts=4), reason="now"),
                timeout=0.5,
            )
    finally:
        await guarded.table.connection.execute("ROLLBACK")
    await eventually(lambda: changes(caplog), "the call was recorded")

    (event,) = changes(caplog)
    assert (event["user"], event["reason"], event["outcome"]) == ("operator", "now", "CANCELLED")


async def test_open_server_records_the_address_and_no_user(
    database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with server_under_test(database_dsn) as server:
        await server.stub.PauseDispatch(pb.PauseDispatchRequest())

    (event,) = changes(caplog)
    assert (event["user"], event["role"], event["address"]) == ("", "admin", "127.0.0.1")


async def test_filter_that_no_call_may_have_is_logged_by_its_size(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {f"key{number}": "value" for number in range(3000)}
    with pytest.raises(grpc.aio.AioRpcError, match="metadata has 3000 entries"):
        await caller(guarded.channel, "operator").CancelJobs(
            pb.CancelJobsRequest(filter=pb.JobFilter(metadata=metadata))
        )

    (change,) = changes(caplog)
    assert change["filter"].endswith("bytes)")


async def test_long_list_is_logged_by_its_first_entries(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="names has 3000 entries"):
        await caller(guarded.channel, "operator").DeclareSchedules(
            pb.DeclareSchedulesRequest(application="a", names=["n"] * 3000)
        )

    (change,) = changes(caplog)
    assert change["asked"] == {"application": "a", "names": ["n"] * 64}


async def test_submit_that_replaces_a_waiting_job_names_the_user_and_the_job(
    guarded: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    unique = pb.Unique(key="shop-7", on_conflict="replace")
    job = pb.SubmitJobRequest(topic="mail", unique=unique)
    first = await caller(guarded.channel, "operator").SubmitJob(job)
    worker = caller(guarded.channel, "worker")
    await worker.SubmitJob(job)
    jobs = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic="mail")], unique_jobs=[job])
    await worker.SubmitJobs(jobs)
    line = worker.StreamSubmits()
    await line.write(pb.StreamSubmitsRequest(number=1, request=jobs))
    await line.read()
    line.cancel()

    events = [vars(record) for record in caplog.records if record.message == "jobs_replaced"]
    facts = [(event["user"], event["role"], event["ids"], event["count"]) for event in events]
    assert facts == [("worker", "worker", [first.job_id], 1)] * 3
