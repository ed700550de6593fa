"""After a commit that has stored jobs the servers are woken, best effort."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import pulse
import pulse.sql
from tests.eventually import PROMPT_SECONDS
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.libraries import django_connection, sqlalchemy_url
from tests.transport.pulse_server_under_test import ServerUnderTest


@pytest.fixture
def blocking(fake: FakePulsed) -> Iterator[pulse.SyncPulse]:
    with pulse.SyncPulse(fake.address) as client:
        yield client


def test_django_wakes_after_the_commit(
    fake: FakePulsed, blocking: pulse.SyncPulse, database_dsn: str
) -> None:
    from django.db import transaction

    job = blocking.register("mail", lambda: None)
    connection = django_connection(database_dsn)
    with transaction.atomic():
        for _ in range(3):
            pulse.sql.enqueue(connection, job)
        assert fake.wakes == 0
    fake.until(lambda: fake.wakes)
    assert fake.wakes <= 2, "those that were asked for while one was under way are one"
    connection.close()


def test_django_does_not_wake_after_a_rollback(
    fake: FakePulsed, blocking: pulse.SyncPulse, database_dsn: str
) -> None:
    from django.db import transaction

    job = blocking.register("mail", lambda: None)
    connection = django_connection(database_dsn)
    with transaction.atomic():
        pulse.sql.enqueue(connection, job)
        transaction.set_rollback(True)
    connection.set_autocommit(False)
    pulse.sql.enqueue(connection, job)  # on_commit is not possible here
    connection.rollback()
    connection.close()
    blocking.enqueue("after")
    assert fake.wakes == 0


def test_test_case_of_django_runs_the_wake_if_it_captures_callbacks(
    fake: FakePulsed, blocking: pulse.SyncPulse, database_dsn: str
) -> None:
    from django.test import TestCase

    job = blocking.register("mail", lambda: None)
    connection = django_connection(database_dsn)
    jobs: list[Any] = []

    class Case(TestCase):
        def test(self) -> None:
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                pulse.sql.enqueue(connection, job)
            cursor = connection.cursor()
            cursor.execute("SELECT topic FROM pulse.jobs")
            jobs.extend([cursor.fetchall(), len(callbacks)])

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.errors, result.failures, jobs) == ([], [], [[("mail",)], 1])
    fake.until(lambda: fake.wakes)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pulse.jobs")
        assert cursor.fetchone() == (0,)  # it was rolled back, as all that such a test stores
    connection.close()


def test_session_wakes_after_the_commit(
    fake: FakePulsed, blocking: pulse.SyncPulse, database_dsn: str
) -> None:
    job = blocking.register("mail", lambda: None)
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_dsn, "psycopg"))
    with Session(engine) as session:
        for wakes in (0, 1):
            with session.begin_nested():
                pulse.sql.enqueue(session, job)
            assert fake.wakes == wakes, "a savepoint is no commit"
            session.commit()
            fake.until(lambda wakes=wakes: fake.wakes == wakes + 1)
    engine.dispose()


async def test_async_session_wakes_after_the_commit(
    fake: FakePulsed, p: pulse.Pulse, database_dsn: str
) -> None:
    job = p.register("mail", lambda: None)
    engine = create_async_engine(sqlalchemy_url(database_dsn, "asyncpg"))
    async with AsyncSession(engine) as session, session.begin():
        await pulse.sql.enqueue(session, job)
        assert fake.wakes == 0
    await fake.until_async(lambda: fake.wakes)
    await engine.dispose()


def test_other_libraries_wake_by_a_call(
    fake: FakePulsed, blocking: pulse.SyncPulse, database_dsn: str
) -> None:
    job = blocking.register("mail", lambda: None)
    with psycopg.connect(database_dsn) as connection:
        pulse.sql.enqueue(connection, job)
    pulse.sql.wake(blocking)
    fake.until(lambda: fake.wakes)


async def test_async_client_wakes_from_its_event_loop(fake: FakePulsed, p: pulse.Pulse) -> None:
    pulse.sql.wake(p)
    await fake.until_async(lambda: fake.wakes == 1)
    await asyncio.to_thread(pulse.sql.wake, p)
    await fake.until_async(lambda: fake.wakes == 2)


async def test_job_of_a_transaction_runs_after_its_commit(
    server: ServerUnderTest, running: Running, database_dsn: str
) -> None:
    async with pulse.Pulse(server.address) as client:

        @client.job("double")
        async def double(number: int) -> int:
            return 2 * number

        async with running(client):
            connection = await asyncpg.connect(database_dsn)
            async with connection.transaction():
                handle = await pulse.sql.enqueue(connection, double, 21)
            await connection.close()
            pulse.sql.wake(client)
            assert await handle.result(timedelta(seconds=PROMPT_SECONDS)) == 42


async def test_wake_never_raises(fake: FakePulsed) -> None:
    closed = pulse.SyncPulse(fake.address)
    closed.close()
    pulse.sql.wake(closed)
    gone = pulse.Pulse("localhost:1")
    pulse.sql.wake(gone)
    await gone.close()
    pulse.sql.wake(gone)
    await asyncio.to_thread(pulse.sql.wake, pulse.Pulse("localhost:1"))  # where no event loop runs
