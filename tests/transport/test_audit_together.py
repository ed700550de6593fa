"""A change and its entry stand or fall together; entries of settings form a chain; old entries go."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import pairwise

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.postgres.database import Database
from pulse_server.upkeep.retention import ExpiredJobs
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


async def test_settings_that_change_at_once_form_a_chain(server: ServerUnderTest) -> None:
    """Each old value is the new value of the entry before."""

    async def change(attempts: int) -> None:
        run = pb.RunPolicy(max_attempts=attempts)
        await server.stub.SetTopicPolicy(pb.SetTopicPolicyRequest(topic="mail", run=run))

    await asyncio.gather(*map(change, range(1, 21)))

    found = await server.stub.ListAudit(pb.ListAuditRequest(topic="mail", page_size=100))
    changes = [json.loads(entry.changes_json)["run.max_attempts"] for entry in found.entries]
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
