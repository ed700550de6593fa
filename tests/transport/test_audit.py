"""The audit: each change has its entry, with its user, and a change that fails has none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.audit import MOST_IDS
from pulse_server.doors.callers import is_change
from tests.lent_databases import LentDatabases
from tests.transport.authorized import METHODS, USERS, answer, basic, caller
from tests.transport.changes import CHANGES, SECRET, job, which
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def module_dsn(lent_databases: LentDatabases) -> Iterator[str]:
    with lent_databases.lend() as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(module_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(module_dsn, users=USERS) as server:
        yield server


async def entries(server: ServerUnderTest, **wanted: Any) -> list[pb.AuditEntry]:
    viewer = caller(server.channel, "viewer")
    found: list[pb.AuditEntry] = list((await viewer.ListAudit(pb.ListAuditRequest(**wanted))).entries)
    return found


async def test_each_change_is_walked() -> None:
    assert {method.name for method in METHODS if is_change(method.name)} == CHANGES.keys()


@pytest.mark.parametrize("method", CHANGES)
async def test_change_is_in_the_audit_with_its_user(guarded: ServerUnderTest, method: str) -> None:
    request = await CHANGES[method](guarded)
    if "reason" in request.DESCRIPTOR.fields_by_name:
        request.reason = f"why {method}"
    before = {entry.action_id for entry in await entries(guarded, method=method)}

    await getattr(caller(guarded.channel, "admin"), method)(request)

    (entry,) = [each for each in await entries(guarded, method=method) if each.action_id not in before]
    assert (entry.user, entry.role, entry.address, entry.outcome) == ("admin", "admin", "127.0.0.1", "OK")
    assert entry.reason == getattr(request, "reason", "")
    assert entry.count >= (0 if "Workflow" in method else 1)
    assert "secret" not in str(entry)


@pytest.mark.parametrize("method", CHANGES)
async def test_change_that_fails_has_no_entry(guarded: ServerUnderTest, method: str) -> None:
    before = [entry.action_id for entry in await entries(guarded, method=method)]
    code, _ = await answer(caller(guarded.channel, "admin"), method)
    if method in {"PauseDispatch", "ResumeDispatch"}:  # an empty request is the switch for everything
        return
    assert code is not grpc.StatusCode.OK
    assert [entry.action_id for entry in await entries(guarded, method=method)] == before


@pytest.mark.parametrize("method", ["DeclareTopics", "DeclareSchedules", "CreateSchedule"])
async def test_unchanged_declaration_has_no_entry(guarded: ServerUnderTest, method: str) -> None:
    request = await CHANGES[method](guarded)
    if method == "CreateSchedule":
        request.name = "nightly"
    admin = caller(guarded.channel, "admin")
    await getattr(admin, method)(request)
    before = await entries(guarded, method=method)

    if method == "DeclareTopics":
        request.worker_id = "another of the fleet"
    await getattr(admin, method)(request)

    assert await entries(guarded, method=method) == before


async def test_batches_of_one_action_are_one_entry(guarded: ServerUnderTest) -> None:
    operator = caller(guarded.channel, "operator")
    for _ in range(5):
        await caller(guarded.channel, "producer").SubmitJob(pb.SubmitJobRequest(topic="bulk", payload=SECRET))
    action_id, token = str(uuid4()), ""
    while True:
        batch = await operator.CancelJobs(
            pb.CancelJobsRequest(
                filter=pb.JobFilter(topic="bulk"),
                reason="wrong list",
                limit=2,
                page_token=token,
                action_id=action_id,
            )
        )
        token = batch.next_page_token
        if not token:
            break

    (entry,) = await entries(guarded, topic="bulk")
    assert (entry.action_id, entry.count, entry.reason, len(entry.ids)) == (action_id, 5, "wrong list", 5)
    assert json.loads(entry.asked_json) == {"filter": {"topic": "bulk"}}
    assert await entries(guarded, id=entry.ids[3]) == [entry]
    assert await entries(guarded, id=action_id) == [entry]


async def test_filter_by_metadata_is_kept_by_its_names(guarded: ServerUnderTest) -> None:
    operator = caller(guarded.channel, "operator")
    metadata = {"iban": SECRET.decode(), "card": "4111"}
    await caller(guarded.channel, "producer").SubmitJob(pb.SubmitJobRequest(topic="bank", metadata=metadata))
    await operator.CancelJobs(pb.CancelJobsRequest(filter=pb.JobFilter(topic="bank", metadata=metadata)))

    (entry,) = await entries(guarded, topic="bank")
    assert json.loads(entry.asked_json) == {"filter": {"topic": "bank", "metadata": ["card", "iban"]}}
    await operator.UndoAction(pb.UndoActionRequest(action_id=entry.action_id))
    (undo,) = await entries(guarded, topic="bank", method="UndoAction")
    assert json.loads(undo.asked_json) == {"action_id": entry.action_id}


async def test_every_job_of_a_large_action_finds_its_entry(guarded: ServerUnderTest) -> None:
    operator = caller(guarded.channel, "operator")
    jobs = [pb.SubmitJobRequest(topic="large") for _ in range(MOST_IDS + 3)]
    submitted = await caller(guarded.channel, "producer").SubmitJobs(pb.SubmitJobsRequest(jobs=jobs))
    await operator.CancelJobs(pb.CancelJobsRequest(filter=pb.JobFilter(topic="large")))

    (entry,) = await entries(guarded, topic="large")
    unnamed = {result.job_id for result in submitted.results} - {*entry.ids}
    assert len(unnamed) == 3
    for job_id in unnamed:
        assert await entries(guarded, id=job_id) == [entry]


async def test_calls_for_single_jobs_with_one_action_id_are_one_entry(guarded: ServerUnderTest) -> None:
    operator, action_id = caller(guarded.channel, "operator"), str(uuid4())
    producer = caller(guarded.channel, "producer")
    jobs = [(await producer.SubmitJob(pb.SubmitJobRequest(topic="one"))).job_id for _ in range(3)]
    calls = (operator.CancelJob(pb.CancelJobRequest(job_id=job, action_id=action_id)) for job in jobs)
    await asyncio.gather(*calls)

    (entry,) = await entries(guarded, topic="one")
    assert (entry.action_id, entry.count, sorted(entry.ids)) == (action_id, 3, sorted(jobs))
    undone = await operator.UndoAction(pb.UndoActionRequest(action_id=action_id))
    assert undone.undone == 3


async def test_action_id_of_another_user_is_refused_and_changes_nothing(guarded: ServerUnderTest) -> None:
    job_id = await job(guarded)
    await caller(guarded.channel, "admin").PauseDispatch(pb.PauseDispatchRequest(topic="other"))
    (pause, *_) = await entries(guarded, topic="other")
    request = pb.CancelJobsRequest(filter=which(), action_id=pause.action_id)
    with pytest.raises(grpc.aio.AioRpcError, match="belongs to another action"):
        await caller(guarded.channel, "operator").CancelJobs(request)
    found = await caller(guarded.channel, "admin").GetJob(pb.GetJobRequest(job_id=job_id))
    assert found.job.status == "PENDING"


async def test_settings_have_their_old_and_new_values(guarded: ServerUnderTest) -> None:
    operator = caller(guarded.channel, "operator")
    for limit in (5, 2):
        await operator.SetTopic(
            pb.SetTopicRequest(topic="orders", entries=pb.TopicEntries(running=limit), reason="ticket 7")
        )
    last, first = await entries(guarded, topic="orders")
    assert json.loads(first.changes_json) == {"running": {"old": None, "new": 5}}
    assert json.loads(last.changes_json) == {"running": {"old": 5, "new": 2}}
    assert (last.topic, last.count, last.user) == ("orders", 1, "operator")


async def test_settings_of_a_topic_are_recorded_as_the_command_line_takes_them(
    guarded: ServerUnderTest,
) -> None:
    operator = caller(guarded.channel, "operator")
    entries_ = pb.TopicEntries(
        rate=pb.StartRate(starts=10, period=Duration(seconds=1)),
        turns=False,
        attempt_timeout=Duration(seconds=90),
        backoff=pb.Backoff(first=Duration(seconds=2), factor=3, longest=Duration(seconds=3600), jitter=0.2),
        keep_completed=pb.Keep(duration=Duration(seconds=86400)),
        keep_canceled=pb.Keep(forever=True),
    )
    await operator.SetTopic(pb.SetTopicRequest(topic="invoices", entries=entries_))
    await operator.SetTopic(pb.SetTopicRequest(topic="invoices", reset=["rate", "turns"]))
    last, first = await entries(guarded, topic="invoices")
    assert {name: each["new"] for name, each in json.loads(first.changes_json).items()} == {
        "rate": "10/s",
        "turns": "no",
        "attempt_timeout": "1m30s",
        "backoff": "first=2s,factor=3,longest=1h,jitter=0.2",
        "keep_completed": "1d",
        "keep_canceled": "forever",
    }
    assert json.loads(last.changes_json) == {
        "rate": {"old": "10/s", "new": None},
        "turns": {"old": "no", "new": None},
    }


async def test_value_that_no_server_here_can_read_is_recorded_as_it_is_stored(
    guarded: ServerUnderTest, module_dsn: str
) -> None:
    """A later version may have stored it. An operator replaces it all the same."""
    operator = caller(guarded.channel, "operator")
    await operator.SetTopic(pb.SetTopicRequest(topic="faxes", entries=pb.TopicEntries(running=5)))
    connection = await asyncpg.connect(module_dsn)
    try:
        rate = {"starts": 0, "period": 60}
        await connection.execute(
            "UPDATE pulse.topic_settings SET entries = $1 WHERE topic = 'faxes'",
            json.dumps({"running": 5, "rate": rate}),
        )
    finally:
        await connection.close()
    await operator.SetTopic(pb.SetTopicRequest(topic="faxes", reset=["rate"]))
    last, _ = await entries(guarded, topic="faxes")
    assert json.loads(last.changes_json) == {"rate": {"old": rate, "new": None}}


async def test_declarations_that_differ_are_recorded_with_all_their_values(guarded: ServerUnderTest) -> None:
    worker = caller(guarded.channel, "worker")
    for name, running in (("w1", 5), ("w2", 5), ("w3", 10)):
        async with StreamingWorker(worker, name, topics=["texts"]):
            topic = pb.DeclaredTopic(topic="texts", entries=pb.TopicEntries(running=running, max_attempts=3))
            await worker.DeclareTopics(pb.DeclareTopicsRequest(worker_id=name, topics=[topic]))
    last, first = await entries(guarded, topic="texts")
    assert json.loads(first.changes_json) == {
        "declared.max_attempts": {"old": None, "new": 3},
        "declared.running": {"old": None, "new": 5},
    }
    assert json.loads(last.changes_json) == {"declared.running": {"old": 5, "new": [5, 10]}}


async def test_refused_change_is_counted_in_one_entry(guarded: ServerUnderTest) -> None:
    viewer = caller(guarded.channel, "viewer")
    for _ in range(3):
        await answer(viewer, "PauseDispatch", pb.PauseDispatchRequest(topic="nope"))
    await answer(viewer, "ListJobs")
    await answer(caller(guarded.channel, "producer", "wrong password"), "CancelJob")
    await answer(caller(guarded.channel, "no such user", "wrong password"), "CancelJob")
    await guarded.app.doors.counted_calls.flush()

    wrong, denied = sorted(await entries(guarded, refused=True), key=lambda entry: entry.user)
    assert (denied.user, denied.role, denied.method, denied.count) == ("viewer", "viewer", "PauseDispatch", 3)
    assert denied.outcome == "PERMISSION_DENIED"
    assert "may not call PauseDispatch" in denied.refusal
    assert (wrong.user, wrong.role, wrong.outcome) == ("producer", "", "UNAUTHENTICATED")


async def test_jobs_that_operators_submit_are_counted(guarded: ServerUnderTest) -> None:
    def one(topic: str) -> pb.SubmitJobRequest:
        return pb.SubmitJobRequest(topic=topic, payload=SECRET)

    operator = caller(guarded.channel, "operator")
    await operator.SubmitJob(one("by-hand"))
    await operator.SubmitJobs(
        pb.SubmitJobsRequest(jobs=[one("by-hand"), one("by-hand-too"), one("two words")])
    )
    columns = pb.JobColumns(
        options=pb.SubmitJobRequest(topic="by-hand"), job_ids=uuid4().bytes, payload_sizes=[0]
    )
    await operator.SubmitJobs(pb.SubmitJobsRequest(columns=columns))
    line = operator.StreamSubmits()
    await line.write(pb.StreamSubmitsRequest(request=pb.SubmitJobsRequest(jobs=[one("by-hand")])))
    await line.read()
    line.cancel()
    await caller(guarded.channel, "producer").SubmitJob(one("by-hand"))
    await caller(guarded.channel, "worker").SubmitJob(one("by-hand"))
    await guarded.app.doors.counted_calls.flush()

    (entry,) = await entries(guarded, topic="by-hand")
    assert (entry.user, entry.role, entry.method, entry.outcome) == (
        "operator",
        "operator",
        "SubmitJob",
        "OK",
    )
    assert (entry.count, entry.asked_json, list(entry.ids)) == (5, "", [])
    assert await entries(guarded, topic="by-hand-too") == [entry]


async def test_visitor_of_a_dashboard_is_named_with_it(guarded: ServerUnderTest) -> None:
    for visitor in ("203.0.113.9", "an operator's joke"):
        await guarded.stub.PauseDispatch(
            pb.PauseDispatchRequest(topic="visited", reason=visitor),
            metadata=(*basic("operator"), ("pulse-visitor", visitor)),
        )
    joke, real = await entries(guarded, topic="visited")
    assert (real.address, joke.address) == ("203.0.113.9 via 127.0.0.1", "127.0.0.1")


async def test_signals_of_applications_are_not_in_the_audit(guarded: ServerUnderTest) -> None:
    request = await CHANGES["SignalJob"](guarded)
    await caller(guarded.channel, "producer").SignalJob(request)
    assert await entries(guarded, user="producer", method="SignalJob") == []


async def test_audit_is_read_in_pages(guarded: ServerUnderTest) -> None:
    await guarded.app.doors.counted_calls.flush()  # not between two pages
    whole = [entry.action_id for entry in await entries(guarded, user="admin", page_size=100)]
    read, token = [], ""
    while True:
        page = await caller(guarded.channel, "operator").ListAudit(
            pb.ListAuditRequest(user="admin", page_size=7, page_token=token)
        )
        read += [entry.action_id for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    assert read[:100] == whole[:100]
    assert len(set(read)) == len(read)
