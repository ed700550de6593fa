"""A job whose row another transaction has locked: the explanation names that transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.database.connections import Database
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.settings import Settings
from pulse_server.views.explanations import Explanations
from pulse_server.views.gates import Explanation
from pulse_server.views.servers import Servers
from pulse_server.wakeups.line import NoWakeupLine
from tests.eventually import eventually
from tests.fakes.store import LEASE, Store, a_job
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection
from tests.rows import each_row

JOB = {"topic": "email", "payload": b"1", "unique_key": "shop-7"}


@pytest.fixture
async def reads(shared_dsn: str) -> AsyncIterator[Explanations]:
    database = Database(shared_dsn)
    worker = ConnectedWorker("A", ("email",), 1, datetime.now(UTC))
    servers = Servers(database, "here", lambda: [worker], interval=timedelta(seconds=1))
    yield Explanations(database, servers, Roster(LEASE, NoWakeupLine()), Settings("", None))
    await database.close()


async def locked(reads: Explanations, job_id: str) -> Explanation:
    """The explanation, once the transaction is older than any of our own."""

    async def found() -> Explanation | None:
        (explanation,) = await reads.of_jobs([job_id])
        return explanation if explanation.cause == "locked" else None

    explanation: Explanation = await eventually(found)
    return explanation


async def test_transaction_that_replaces_a_waiting_job_is_named(
    store: Store, connection: Connection, second_connection: Connection, reads: Explanations
) -> None:
    await second_connection.execute("SET application_name = 'shop-web'")
    job_id, _, _ = await enqueue(connection, **JOB)
    await second_connection.execute("BEGIN")
    # In a savepoint, as a handler of a framework has it: the row names a subtransaction.
    await second_connection.execute("SAVEPOINT inner_one")
    assert (await enqueue(second_connection, **JOB, on_conflict="replace"))[2]
    found = await locked(reads, job_id)
    await second_connection.execute("ROLLBACK")

    pid = second_connection.get_server_pid()
    assert found.sentence.startswith(
        f"The transaction of session {pid} (role pulse, application shop-web, since "
    )
    assert found.brief.startswith(f"locked by the transaction of session {pid}")
    assert f"pg_terminate_backend({pid})" in found.remedy
    (after,) = await reads.of_jobs([job_id])
    assert after.cause == ""


async def test_transaction_is_named_after_its_savepoint_was_released(
    connection: Connection, second_connection: Connection, reads: Explanations
) -> None:
    """The row names the subtransaction still, and no list of locks does."""
    job_id, _, _ = await enqueue(connection, **JOB)
    await second_connection.execute("BEGIN")
    await second_connection.execute("SAVEPOINT inner_one")
    await enqueue(second_connection, **JOB, on_conflict="replace")
    await second_connection.execute("RELEASE inner_one")
    found = await locked(reads, job_id)
    assert f"pg_terminate_backend({second_connection.get_server_pid()})" in found.remedy

    # Either of the two may have locked it: none is named.
    await connection.execute("BEGIN")
    await enqueue(connection, topic="sms", payload=b"1")
    await asyncio.sleep(0.11)
    (found,) = await reads.of_jobs([job_id])
    assert found.cause == ""
    await connection.execute("ROLLBACK")
    await second_connection.execute("ROLLBACK")
    await asyncio.sleep(0.11)
    (found,) = await reads.of_jobs([job_id])
    assert found.cause == ""


async def test_prepared_transaction_is_named(
    store: Store, connection: Connection, second_connection: Connection, reads: Explanations
) -> None:
    (job_id,) = await store.submit(a_job())
    await second_connection.execute("BEGIN")
    await second_connection.execute("SELECT FROM pulse.jobs FOR UPDATE")
    await second_connection.execute("PREPARE TRANSACTION 'order 7'")
    found = await locked(reads, job_id)
    await second_connection.execute("ROLLBACK PREPARED 'order 7'")

    assert found.sentence.startswith("The prepared transaction 'order 7' (role pulse, since ")


@each_row(
    "change", ["queued = false, next_run_at = now() - interval '1 s'", "start_by = now() - interval '1 s'"]
)
async def test_job_that_is_due_or_too_late_and_locked_is_explained_by_the_lock(
    store: Store, connection: Connection, second_connection: Connection, reads: Explanations, change: str
) -> None:
    """No server promotes or cancels it."""
    (job_id,) = await store.submit(a_job())
    await connection.execute(f"UPDATE pulse.jobs SET {change} WHERE id = $1::uuid", job_id)
    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.jobs WHERE id = $1::uuid FOR UPDATE", job_id)
        await locked(reads, job_id)


async def test_running_job_without_heartbeats_is_explained_by_the_lock(
    store: Store, connection: Connection, second_connection: Connection, reads: Explanations
) -> None:
    claim = await store.start()
    await connection.execute("UPDATE pulse.jobs SET lease_until = now() + interval '1 s'")
    async with second_connection.transaction():
        await complete(second_connection, claim)
        found = await locked(reads, claim.job_id)

    assert found.sentence.startswith("It runs on A, and the transaction of session ")
    assert "as after ctx.complete" in found.sentence


async def test_lock_of_a_transaction_that_has_ended_is_no_cause(
    store: Store, connection: Connection, reads: Explanations
) -> None:
    """The row still has the number of that transaction."""
    (job_id,) = await store.submit(a_job())
    async with connection.transaction():
        await connection.execute("SELECT FROM pulse.jobs FOR UPDATE")
    (found,) = await reads.of_jobs([job_id])

    assert found.cause == ""
