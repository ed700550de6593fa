"""A change and its entry stand or fall together; entries of settings form a chain; old entries go."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import pairwise

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import new_id
from pulse_server.database.audit import Action, under_way
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows
from pulse_server.work.retention import ExpiredJobs
from tests.transport.pulse_server_under_test import ServerUnderTest


async def test_change_whose_entry_cannot_be_written_is_not_made(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    await server.table.connection.execute("ALTER TABLE pulse.audit RENAME TO audit_elsewhere")

    with pytest.raises(grpc.aio.AioRpcError, match="schema of the database is damaged"):
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    with pytest.raises(grpc.aio.AioRpcError, match="schema of the database is damaged"):
        await server.stub.PauseDispatch(pb.PauseDispatchRequest(topic="mail"))

    assert (await server.get(job_id)).status == "PENDING"
    status = await server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    assert list(status.topics) == []


async def test_locked_audit_refuses_an_action_before_it_locks_a_job(server: ServerUnderTest) -> None:
    """The job stays free for its worker, and the answer names the lock."""
    job_id = await server.submit()
    other = server.table.connection.another()
    async with other.transaction():
        await other.execute("LOCK TABLE pulse.audit IN ACCESS EXCLUSIVE MODE")
        calls = [
            asyncio.ensure_future(server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))),
            asyncio.ensure_future(server.stub.PauseDispatch(pb.PauseDispatchRequest())),
        ]
        ends = asyncio.gather(*calls, return_exceptions=True)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        while not (ends.done() or await other.fetchval(waiting)):  # noqa: ASYNC110 - no bell rings
            await asyncio.sleep(0)
        async with server.table.connection.transaction():
            free = "SELECT id FROM pulse.jobs FOR UPDATE SKIP LOCKED"
            assert await server.table.connection.fetch(free), "no action waits with the job locked"
        for end in await ends:
            assert isinstance(end, grpc.aio.AioRpcError)
            assert end.code() is grpc.StatusCode.UNAVAILABLE
            assert "Another session of the database holds a lock that this needs" in (end.details() or "")
        await server.submit()
    await other.close()
    assert (await server.get(job_id)).status == "PENDING"


async def test_pause_of_everything_does_not_wait_for_another_change(
    server: ServerUnderTest, database_dsn: str
) -> None:
    """A change of a topic waits for a row that a stranger has locked."""
    database, ended = Database(database_dsn), asyncio.Event()
    begun = asyncio.Event()

    async def work(_fetch: Fetch) -> Rows:
        begun.set()
        await ended.wait()
        return []

    async def change() -> None:
        with under_way(Action(new_id(), "SetTopic", "", "", "", topics=("mail",))):
            await database.operators.transact("set_topic", work)

    waiting = asyncio.create_task(change())
    await begun.wait()
    try:
        await server.stub.PauseDispatch(pb.PauseDispatchRequest(reason="fire"))
        assert not waiting.done()
    finally:
        ended.set()
        await waiting
        await database.close()


async def test_settings_that_change_at_once_form_a_chain(server: ServerUnderTest) -> None:
    """Each old value is the new value of the entry before."""

    async def change(attempts: int) -> None:
        run = pb.TopicEntries(max_attempts=attempts)
        await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=run))

    await asyncio.gather(*map(change, range(1, 21)))

    found = await server.stub.ListAudit(pb.ListAuditRequest(topic="mail", page_size=100))
    changes = [json.loads(entry.changes_json)["max_attempts"] for entry in found.entries]
    by_old = {each["old"]: each["new"] for each in changes}
    assert len(by_old) == 20
    chain = [None]
    while chain[-1] in by_old:
        chain.append(by_old[chain[-1]])
    assert sorted(chain[1:]) == list(range(1, 21))
    assert all(by_old[old] == new for old, new in pairwise(chain))


async def test_old_entries_are_deleted(server: ServerUnderTest, database_dsn: str) -> None:
    for topic in ("old", "new"):
        await server.stub.PauseDispatch(pb.PauseDispatchRequest(topic=topic))
    await server.table.connection.execute(
        "UPDATE pulse.audit SET at = now() - interval '91 days' WHERE topics = '{old}'"
    )
    database = Database(database_dsn)
    try:
        assert await ExpiredJobs(database).delete_old_audit(timedelta(days=90), 10) == 1
    finally:
        await database.close()
    found = await server.stub.ListAudit(pb.ListAuditRequest())
    assert [entry.topic for entry in found.entries] == ["new"]


async def test_payload_of_a_schedule_is_known_by_its_size_alone(server: ServerUnderTest) -> None:
    made = await server.stub.CreateSchedule(
        pb.CreateScheduleRequest(topic="mail", payload=b"secret-one", cron="@daily", name="n")
    )
    for payload in (b"secret-two", b"secret-two"):
        update = pb.UpdateScheduleRequest(schedule_id=made.schedule_id, payload=payload)
        await server.stub.UpdateSchedule(update)

    found = await server.stub.ListAudit(pb.ListAuditRequest(method="UpdateSchedule"))
    (entry,) = found.entries  # the second update changed nothing
    assert json.loads(entry.changes_json) == {"payload": {"old": "10 bytes", "new": "10 bytes"}}
    assert "secret" not in str(await server.table.connection.fetch("SELECT * FROM pulse.audit"))
