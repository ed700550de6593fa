"""`pulse.sql` stores jobs in the transaction of the application, with every library that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy

import pulse
import pulse.sql
from tests.sdk.libraries import Transaction, django_connection, done, sqlalchemy_url

p = pulse.Pulse("localhost:1")
blocking = pulse.SyncPulse("localhost:1")


@dataclass
class Receipt:
    order: int


@p.job("send-receipt", priority=4, max_attempts=7)
async def send_receipt(receipt: Receipt) -> None: ...


@blocking.job("send-letter")
def send_letter(to: str, stamps: int = 1) -> None: ...


async def job_of(database: asyncpg.Connection[asyncpg.Record], handle: pulse.JobHandle) -> Any:
    return await database.fetchrow("SELECT * FROM pulse.jobs WHERE id = $1", handle.id)


async def test_job_is_stored_at_the_commit(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    handle = await done(pulse.sql.enqueue(transaction.connection, send_receipt, Receipt(7)))
    assert await job_of(database, handle) is None
    await done(transaction.commit())
    job = await job_of(database, handle)
    assert (job["topic"], job["payload"], job["priority"]) == ("send-receipt", b'{"order":7}', 4)
    assert job["max_attempts"] == 7
    assert (handle.topic, handle.duplicate, handle.replaced) == ("send-receipt", False, False)


async def test_rollback_leaves_no_job(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    handle = await done(pulse.sql.enqueue(transaction.connection, send_receipt, Receipt(7)))
    await done(transaction.rollback())
    assert await job_of(database, handle) is None


async def test_options_are_those_of_an_enqueue(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    later = datetime(2100, 1, 1, 12, 30, tzinfo=UTC)
    options: dict[str, Any] = {
        "priority": 3,
        "max_attempts": 5,
        "start_within": timedelta(hours=1),
        "lane": "shop-7",
        "key": "receipt-7",
        "metadata": {"who": "Žižek"},
        "job_id": "0190a5d0-0000-7000-8000-000000000007",
    }
    with_time = await done(
        pulse.sql.enqueue(transaction.connection, "mail", {"x": 1}, run_at=later, **options)
    )
    unique = pulse.Unique("u", on_conflict="debounce", period=timedelta(hours=1), longest=timedelta(hours=2))
    debounced = await done(pulse.sql.enqueue(transaction.connection, "mail", b"\0raw", unique=unique))
    delayed = await done(
        pulse.sql.enqueue(transaction.connection, "mail", delay=timedelta(days=2, seconds=1))
    )
    await done(transaction.commit())
    assert with_time.id == options["job_id"]
    job = await job_of(database, with_time)
    assert (job["payload"], job["next_run_at"], job["priority"]) == (b'{"x":1}', later, 3)
    assert (job["max_attempts"], job["idempotency_key"], job["lane"]) == (5, "receipt-7", "shop-7")
    assert pulse.payload.decode_json(job["metadata"].encode()) == {"who": "Žižek"}
    job = await job_of(database, debounced)
    assert (job["payload"], job["unique_key"]) == (b"\0raw", "u")
    job = await job_of(database, delayed)
    assert job["payload"] == b""
    # Both are times of the clock during the call.
    waits = job["next_run_at"] - job["submitted_at"]
    assert abs(waits - timedelta(days=2, seconds=1)) < timedelta(milliseconds=500)


async def test_repeat_with_the_same_key_is_a_duplicate(transaction: Transaction) -> None:
    job = send_receipt.options(key="receipt-7")
    first = await done(pulse.sql.enqueue(transaction.connection, job, Receipt(7)))
    again = await done(pulse.sql.enqueue(transaction.connection, job, Receipt(7)))
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
    with pytest.raises(pulse.AlreadyExists, match="receipt-7"):
        await done(pulse.sql.enqueue(transaction.connection, job, Receipt(8)))


async def test_bad_argument_is_refused_with_its_sentence(transaction: Transaction) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"^topic .*\.$"):
        await done(pulse.sql.enqueue(transaction.connection, "no topic"))


async def test_many_jobs_are_stored_with_one_statement(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    connection = transaction.connection
    items = [Receipt(1), send_receipt.with_options(Receipt(2), key="two", lane="shop-2"), Receipt(3)]
    handles = await done(pulse.sql.enqueue_many(connection, send_receipt, items))
    again = await done(pulse.sql.enqueue_many(connection, send_receipt, items[1:2]))
    plain = await done(pulse.sql.enqueue_many(connection, "mail", [{"x": 1}, b"raw"], priority=9))
    await done(transaction.commit())
    jobs = [await job_of(database, handle) for handle in handles]
    assert [job["payload"] for job in jobs] == [b'{"order":1}', b'{"order":2}', b'{"order":3}']
    assert [job["idempotency_key"] for job in jobs] == [None, "two", None]
    assert [job["lane"] for job in jobs] == [None, "shop-2", None]
    assert {job["priority"] for job in jobs} == {4}
    assert [handle.id for handle in again] == [handles[1].id]
    jobs = [await job_of(database, handle) for handle in plain]
    assert [(job["payload"], job["priority"]) for job in jobs] == [(b'{"x":1}', 9), (b"raw", 9)]


def test_option_that_the_functions_do_not_take_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.messages._TAKEN_BY_SQL", {"topic", "payload", "priority"})
    with pytest.raises(pulse.InvalidArgument, match="lane is not for jobs that are stored in a transaction"):
        pulse.sql.enqueue(psycopg2.connect, "t", lane="acme")


async def test_error_of_the_application_stays_its_own(transaction: Transaction) -> None:
    with pytest.raises(Exception, match="nowhere") as caught:
        await done(transaction.run("SELECT * FROM nowhere"))
    # The transaction is aborted: what the driver raises is for the application.
    with pytest.raises(Exception, match="aborted") as later:
        await done(pulse.sql.enqueue(transaction.connection, "mail"))
    assert not isinstance(caught.value, pulse.PulseError)
    assert not isinstance(later.value, pulse.PulseError)


# ---------------------------------------------------------------- outside of a transaction


async def test_asyncpg_outside_of_a_transaction(database: asyncpg.Connection[asyncpg.Record]) -> None:
    with pytest.raises(pulse.InvalidArgument, match="enqueue was called outside of a transaction"):
        await pulse.sql.enqueue(database, "mail", strict=True)
    assert await job_of(database, await pulse.sql.enqueue(database, "mail")) is not None


def test_psycopg_with_autocommit(database_dsn: str) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        with pytest.raises(pulse.InvalidArgument, match="outside of a transaction"):
            pulse.sql.enqueue(connection, "mail", strict=True)
        pulse.sql.enqueue(connection, "mail")
        with connection.transaction():
            pulse.sql.enqueue(connection, "mail", strict=True)
    with psycopg.connect(database_dsn) as connection:
        pulse.sql.enqueue(connection, "mail", strict=True)


def test_psycopg2_with_autocommit(database_dsn: str) -> None:
    connection = psycopg2.connect(database_dsn)
    pulse.sql.enqueue(connection, "mail", strict=True)
    connection.rollback()
    connection.autocommit = True
    with pytest.raises(pulse.InvalidArgument, match="outside of a transaction"):
        pulse.sql.enqueue(connection, "mail", strict=True)
    connection.close()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_with_autocommit(database_dsn: str, driver: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_dsn, driver), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(pulse.InvalidArgument, match="outside of a trans"):
        pulse.sql.enqueue(connection, "mail", strict=True)
    engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_async_sqlalchemy_with_autocommit(database_dsn: str, driver: str) -> None:
    url = sqlalchemy_url(database_dsn, driver)
    engine = sqlalchemy.ext.asyncio.create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        with pytest.raises(pulse.InvalidArgument, match="outside of a transaction"):
            await pulse.sql.enqueue(connection, "mail", strict=True)
    await engine.dispose()


def test_django_outside_of_atomic(database_dsn: str) -> None:
    from django.db import transaction

    connection = django_connection(database_dsn)
    with pytest.raises(pulse.InvalidArgument, match="outside of a transaction"):
        pulse.sql.enqueue(connection, "mail", strict=True)
    with transaction.atomic():
        pulse.sql.enqueue(connection, "mail", strict=True)
    connection.close()


# ---------------------------------------------------------------- what is given


@pytest.mark.parametrize("thing", [object(), None, "dsn", sqlalchemy.create_engine("postgresql+psycopg://")])
def test_anything_else_is_no_connection(thing: object) -> None:
    with pytest.raises(pulse.InvalidArgument, match="is not a connection that pulse knows"):
        pulse.sql.enqueue(thing, "mail")


def test_other_databases_have_no_jobs() -> None:
    with (
        sqlalchemy.create_engine("sqlite://").connect() as connection,
        pytest.raises(pulse.InvalidArgument, match="The connection is to sqlite"),
    ):
        pulse.sql.enqueue(connection, "mail")


def test_arguments_are_checked_against_the_handler(database_dsn: str) -> None:
    with psycopg.connect(database_dsn) as connection:
        with pytest.raises(pulse.InvalidArgument, match="could not read this job"):
            pulse.sql.enqueue(connection, send_receipt, {"order": "seven"})
        with pytest.raises(pulse.InvalidArgument, match="does not take color"):
            pulse.sql.enqueue(connection, send_letter, "me", color="red")
        with pytest.raises(pulse.InvalidArgument, match="has no option 'timeout'"):
            pulse.sql.enqueue(connection, "mail", timeout=timedelta(seconds=1))
        items = [Receipt(1), pulse.JobItem(Receipt(2), priority=3)]
        with pytest.raises(pulse.InvalidArgument, match="Item number 1: In a transaction"):
            pulse.sql.enqueue_many(connection, send_receipt, items)
        with pytest.raises(pulse.InvalidArgument, match="Options come with the handler"):
            pulse.sql.enqueue_many(connection, send_receipt, [], priority=3)
        with pytest.raises(pulse.InvalidArgument, match="enqueue each by itself"):
            pulse.sql.enqueue_many(connection, "mail", [{"x": 1}], unique=pulse.Unique(by="x"))
        with pytest.raises(pulse.InvalidArgument, match="Give a handler"):
            pulse.sql.enqueue(connection, print)  # type: ignore[arg-type]


def test_handle_is_of_the_client_of_its_handler(database_dsn: str) -> None:
    with psycopg.connect(database_dsn) as connection:
        assert isinstance(pulse.sql.enqueue(connection, send_letter, "me", stamps=2), pulse.SyncJobHandle)
        handle = pulse.sql.enqueue(connection, "mail")
    with pytest.raises(pulse.ClientClosed, match="has no client"):
        handle.result()


def test_key_above_read_committed_is_refused(database_dsn: str) -> None:
    with psycopg.connect(database_dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pulse.sql.enqueue(connection, "mail")
        with pytest.raises(pulse.InvalidArgument, match="READ COMMITTED"):
            pulse.sql.enqueue(connection, "mail", key="k")


def test_database_without_the_functions_is_named(empty_database_dsn: str) -> None:
    with (
        psycopg.connect(empty_database_dsn) as connection,
        pytest.raises(pulse.InvalidArgument, match="is it that of pulsed, and migrated"),
    ):
        pulse.sql.enqueue(connection, "mail")


def test_role_without_the_right_is_refused(database_dsn: str) -> None:
    with psycopg.connect(database_dsn) as connection:
        connection.execute("CREATE ROLE shop_without_rights; SET LOCAL ROLE shop_without_rights")
        with pytest.raises(pulse.PermissionDenied, match="see `pulsed grants`"):
            pulse.sql.enqueue(connection, "mail")
