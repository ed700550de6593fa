"""`ctx.complete`: a handler completes its job in its own transaction, with its rows or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import pulse
from pulse.handlers.context import NO_STATE, Context, context_for
from pulse.handlers.step_calls import StepCalls
from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import parse_users
from pulse_server.base.ids import completion_key
from tests.eventually import eventually
from tests.postgres_cluster import SECRET
from tests.sdk.conftest import Running
from tests.sdk.effects import INSERT, Database, FakeConnection, commit, effects
from tests.sdk.libraries import LIBRARIES, django_connection, done, sqlalchemy_url
from tests.transport.pulse_server_under_test import server_under_test

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
    steps.completion_key = pb.CompletionKey(worker="w1", key=completion_key(SECRET, "w1"))
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


async def test_worker_of_a_user_completes_its_job(
    running: Running, database: Database, database_dsn: str
) -> None:
    """The database has the worker id with the name of the user, which only the server knows."""
    users = parse_users("ann:right", "PULSE_AUTH_USERS")
    async with server_under_test(database_dsn, users=users) as server:
        client = pulse.Pulse(server.address, user="ann", password="right", drain_timeout=timedelta(seconds=5))

        @client.job("charge")
        async def charge(ctx: Context) -> None:
            await commit(ctx, database_dsn)

        async with client, running(client):
            handle = await charge.enqueue()
            assert await handle.result(timedelta(seconds=30)) is None
            assert (await client.get_job(handle.id)).attempts == 1
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


async def test_step_before_the_commit_fails_the_attempt_instead_of_waiting_for_it(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    @client.job("charge", max_attempts=1)
    async def charge(ctx: Context) -> None:
        connection = await asyncpg.connect(database_dsn)
        async with connection.transaction():
            await connection.execute(INSERT)
            await ctx.complete(connection)
            await ctx.step("late", str)

    async with running(client):
        handle = await charge.enqueue()
        with pytest.raises(pulse.JobFailed, match=r"call ctx\.complete last"):
            await handle.result(timedelta(seconds=30))
    assert await effects(database) == 0


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
