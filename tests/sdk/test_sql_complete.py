"""`ctx.complete`: a handler completes its job in its own transaction, with its rows or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import pulse
from pulse.handlers.context import Context, context_for
from pulse.handlers.resources import NO_STATE
from pulse.handlers.step_calls import StepCalls
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.fakes.time_machines import lapse_all_leases
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.libraries import LIBRARIES, django_connection, done, sqlalchemy_url
from tests.transport.pulse_server_under_test import ServerUnderTest

INSERT = "INSERT INTO effects DEFAULT VALUES"
Database: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute("CREATE TABLE effects (number serial)")
    yield connection
    await connection.execute("DROP TABLE effects")
    await connection.close()


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, drain_timeout=timedelta(seconds=5)) as client:
        yield client


async def effects(database: Database) -> int:
    count: int = await database.fetchval("SELECT count(*) FROM effects")
    return count


# ---------------------------------------------------------------- each library


@pytest.mark.parametrize("library", LIBRARIES)
async def test_lost_claim_rolls_the_rows_back(
    library: str, database: Database, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    context = context_of("00000000-0000-7000-8000-000000000000")
    async with LIBRARIES[library](database_dsn) as transaction:
        await done(transaction.run(INSERT))
        with pytest.raises(pulse.ClaimLost, match="no longer held by run 3 of worker w1"):
            await context.complete(transaction.connection)
        await done(transaction.rollback())
    assert await effects(database) == 0


def context_of(job_id: str) -> Context:
    """Return the context of a handler in a worker without a server."""
    assignment = pb.JobAssignment(job_id=job_id, topic="charge", attempt=2, run=3)
    steps = StepCalls(lambda: pytest.fail("nothing is called"), asyncio.get_running_loop(), "w1")
    return context_for(assignment, NO_STATE, None, steps)


# ---------------------------------------------------------------- a worker and a server


async def test_job_is_completed_with_its_rows(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    @client.job("charge")
    async def charge(ctx: Context) -> dict[str, int]:
        connection = await asyncpg.connect(database_dsn)
        async with connection.transaction():
            await connection.execute(INSERT)
            await ctx.complete(connection, {"paid": 7})
        await connection.close()
        return None  # type: ignore[return-value]

    async with running(client):
        handle = await charge.enqueue()
        assert await handle.result(timedelta(seconds=30)) == {"paid": 7}
    job = await client.get_job(handle.id)
    assert (job.status, job.attempts, job.history) == (pulse.JobStatus.COMPLETED, 1, ())
    assert await effects(database) == 1


async def test_session_of_sqlalchemy_completes_its_job(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    engine = create_async_engine(sqlalchemy_url(database_dsn, "asyncpg"))

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text(INSERT))
            await ctx.complete(session)

    async with running(client):
        handle = await charge.enqueue()
        assert await handle.result(timedelta(seconds=30)) is None
    assert await effects(database) == 1
    await engine.dispose()


async def test_def_handlers_complete_their_jobs(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    @client.job("charge")
    def charge(ctx: pulse.SyncContext) -> None:
        with psycopg.connect(database_dsn) as connection:
            connection.execute(INSERT)
            assert ctx.complete(connection, result=[7]) is None

    @client.job("charge-by-django")
    def charge_by_django(ctx: pulse.SyncContext) -> None:
        from django.db import transaction

        connection = django_connection(database_dsn)
        with transaction.atomic():
            connection.cursor().execute(INSERT)
            ctx.complete(connection, result=[8])
        connection.close()

    async with running(client):
        for job, paid in ((charge, [7]), (charge_by_django, [8])):
            assert await (await job.enqueue()).result(timedelta(seconds=30)) == paid
    assert await effects(database) == 2


async def test_handler_that_rolls_back_and_returns_has_failed(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    @client.job("charge", max_attempts=1)
    async def charge(ctx: Context) -> None:
        connection = await asyncpg.connect(database_dsn)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(INSERT)
        await ctx.complete(connection)
        await transaction.rollback()
        await connection.close()

    async with running(client):
        with pytest.raises(pulse.JobFailed, match=r"called ctx.complete, but .* was not committed"):
            await (await charge.enqueue()).result(timedelta(seconds=30))
    assert await effects(database) == 0


async def test_handler_that_catches_the_refusal_and_returns_has_failed(
    client: pulse.Pulse, running: Running
) -> None:
    @client.job("charge", max_attempts=1)
    async def charge(ctx: Context) -> None:
        with pytest.raises(pulse.InvalidArgument, match="is not a connection"):
            await ctx.complete("no connection")
        connection = FakeConnection(is_in_transaction=False)
        with pytest.raises(pulse.InvalidArgument, match=r"ctx\.complete was called outside of a trans"):
            await ctx.complete(connection)

    async with running(client):
        with pytest.raises(pulse.JobFailed, match="was not committed"):
            await (await charge.enqueue()).result(timedelta(seconds=30))


async def test_failure_after_the_commit_changes_nothing(
    client: pulse.Pulse,
    running: Running,
    database: Database,
    database_dsn: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @client.job("charge")
    async def charge(ctx: Context) -> None:
        await commit(ctx, database_dsn)
        raise ValueError("after the commit")

    async with running(client):
        handle = await charge.enqueue()
        assert await handle.result(timedelta(seconds=30)) is None
        sentence = "it will be retried unless the transaction of ctx.complete was committed: ValueError"
        await eventually(lambda: sentence in caplog.text)
    job = await client.get_job(handle.id)
    assert (job.status, job.attempts, job.last_error) == (pulse.JobStatus.COMPLETED, 1, None)
    assert "refused" not in caplog.text
    assert await effects(database) == 1


async def commit(ctx: Context, dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(INSERT)
            await ctx.complete(connection)
    finally:
        await connection.close()


async def test_repeat_after_a_commit_is_refused_and_rolled_back(
    client: pulse.Pulse,
    running: Running,
    database: Database,
    database_dsn: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pulse.worker")

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        await commit(ctx, database_dsn)
        await commit(ctx, database_dsn)  # as if the answer to the first had been lost

    async with running(client):
        handle = await charge.enqueue()
        await handle.result(timedelta(seconds=30))
        await eventually(lambda: "is completed already, by this very run" in caplog.text)
    assert (await client.get_job(handle.id)).status is pulse.JobStatus.COMPLETED
    assert await effects(database) == 1
    assert "failed" not in caplog.text


async def test_second_try_after_a_rollback_completes_the_job(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    @client.job("charge", max_attempts=1)
    async def charge(ctx: Context) -> None:
        connection = await asyncpg.connect(database_dsn)
        with contextlib.suppress(asyncpg.DivisionByZeroError):
            async with connection.transaction():
                await ctx.complete(connection)
                await connection.execute("SELECT 1 / 0")
        await connection.close()
        await commit(ctx, database_dsn)

    async with running(client):
        assert await (await charge.enqueue()).result(timedelta(seconds=30)) is None
    assert await effects(database) == 1


async def test_handler_that_ignores_its_cancellation_cannot_write(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    started = asyncio.Event()
    raised: list[BaseException] = []

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                await commit(ctx, database_dsn)
            except pulse.ClaimLost as error:
                raised.append(error)
            raise

    async with running(client):
        handle = await charge.enqueue()
        await started.wait()
        await client.cancel(handle.id)
        await eventually(lambda: raised)
    assert type(raised[0]) is pulse.ClaimLost
    assert (await client.get_job(handle.id)).status is pulse.JobStatus.CANCELED
    assert await effects(database) == 0


async def test_run_whose_lease_was_lost_cannot_write_beside_the_next_one(
    server: ServerUnderTest, client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    started, is_reaped = asyncio.Event(), asyncio.Event()
    ends: list[tuple[int, type[Exception] | None]] = []

    async def charge_anyway(ctx: Context) -> None:
        started.set()
        await is_reaped.wait()
        try:
            await commit(ctx, database_dsn)
        except pulse.ClaimLost as error:
            ends.append((ctx.run, type(error)))
        else:
            ends.append((ctx.run, None))

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        await asyncio.shield(charge_anyway(ctx))

    async with running(client):
        handle = await charge.enqueue()
        await started.wait()
        await lapse_all_leases(server.table.connection)
        server.app.lease_keeping.watchdog._steady_since = -1e9
        server.app.lease_keeping.watchdog.loop.nudge()
        await eventually(lambda: job_has_run(server, handle.id, 2))
        is_reaped.set()
        await eventually(lambda: len(ends) == 2)
    assert sorted(ends) == [(1, pulse.ClaimLost), (2, None)]
    assert (await client.get_job(handle.id)).status is pulse.JobStatus.COMPLETED
    assert await effects(database) == 1


async def job_has_run(server: ServerUnderTest, job_id: str, run: int) -> bool:
    sql = "SELECT run = $2 AND locked_by IS NOT NULL FROM pulse.jobs WHERE id = $1"
    return bool(await server.table.connection.fetchval(sql, job_id, run))


async def test_returned_value_is_dropped_with_a_warning(
    client: pulse.Pulse,
    running: Running,
    database: Database,
    database_dsn: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @client.job("charge")
    async def charge(ctx: Context) -> int:
        await commit(ctx, database_dsn)
        return 7

    async with running(client):
        assert await (await charge.enqueue()).result(timedelta(seconds=30)) is None
        await eventually(lambda: "returned a value after ctx.complete, and it is dropped" in caplog.text)


@pytest.mark.parametrize("topic", ["charge", "charge-async"])
async def test_handler_in_a_process_completes_its_job(
    server: ServerUnderTest, client: pulse.Pulse, database: Database, database_dsn: str, topic: str
) -> None:
    script = Path(__file__).with_name("transaction_app.py")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ADDRESS": server.address,
        "DSN": database_dsn,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, script, env=environment)
    try:
        committed = await client.enqueue(topic, {"commits": True})
        assert await committed.result(timedelta(seconds=60)) == {"paid": 7}
        rolled_back = await client.enqueue(topic, {"commits": False}, max_attempts=1)
        with pytest.raises(pulse.JobFailed, match="was not committed"):
            await rolled_back.result(timedelta(seconds=60))
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)
    assert await effects(database) == 1


# ---------------------------------------------------------------- a worker alone


class FakeConnection:
    """A connection of asyncpg on which every statement succeeds."""

    def __init__(self, *, is_in_transaction: bool = True) -> None:
        self._is_in_transaction = is_in_transaction
        self.statements: list[tuple[Any, ...]] = []

    def is_in_transaction(self) -> bool:
        return self._is_in_transaction

    async def fetchrow(self, *statement: Any) -> tuple[Any, ...]:
        self.statements.append(statement)
        return (None,)


FakeConnection.__module__ = "asyncpg.fake"


async def test_heartbeat_stops_no_handler_that_has_called_complete(running: Running) -> None:
    fake = FakePulsed(lease_seconds=1, heartbeat_seconds=0.1).start()
    async with pulse.Pulse(fake.address, drain_timeout=timedelta(seconds=5)) as client:
        go = asyncio.Event()

        @client.job("work")
        async def work(ctx: Context) -> None:
            await ctx.complete(FakeConnection())
            await go.wait()

        async with running(client):
            fake.disowned = {"j1"}
            fake.deliver("j1")
            await fake.until_async(lambda: fake.beats.count(("j1", 1)) >= 3)
            go.set()
            await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert (result.success, result.in_transaction) == (False, True)
    assert result.error == "The handler called ctx.complete, but its transaction was not committed."
    fake.stop()


async def test_error_after_complete_is_reported_as_one_of_a_transaction(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    connection = FakeConnection()

    @p.job("work")
    async def work(ctx: Context) -> None:
        await ctx.complete(connection, result=b"raw")
        raise ValueError("no")

    async with running(p):
        fake.deliver("j1", attempt=2, run=5)
        await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert (result.success, result.in_transaction, result.error[:10]) == (False, True, "ValueError")
    ((_, job_id, worker_id, run, encoded),) = connection.statements
    assert (job_id, run, encoded) == ("j1", 5, b"raw")
    assert worker_id


async def test_async_connection_in_a_def_handler_is_refused(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    def work(ctx: pulse.SyncContext) -> None:
        ctx.complete(FakeConnection())

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert "async connection in a `def` handler" in fake.results["j1"].error


async def test_complete_does_nothing_in_a_unit_test() -> None:
    await pulse.Context().complete(object(), result=7)


def test_complete_does_nothing_in_a_unit_test_of_a_def_handler() -> None:
    assert pulse.SyncContext().complete(object()) is None
