"""`pulse.outbox`: the helpers of `pulse.sql` write to the outbox of another database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

import pulse
from pulse_cli.outbox.database import outbox_sql

p = pulse.Pulse("127.0.0.1:1")


@p.job("send-receipt", max_attempts=4, priority=3)
async def send_receipt(order: int) -> None: ...


@pytest.fixture
async def shop(empty_database_dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(empty_database_dsn)
    await connection.execute(outbox_sql())
    yield connection
    await connection.close()


async def rows(shop: asyncpg.Connection[Any], columns: str) -> list[tuple[Any, ...]]:
    found = await shop.fetch(f"SELECT {columns} FROM pulse_outbox.jobs ORDER BY number")
    return [tuple(row.values()) for row in found]


async def test_job_of_a_handler_is_stored_with_its_options(shop: asyncpg.Connection[Any]) -> None:
    async with shop.transaction():
        job = send_receipt.options(key="receipt-7", metadata={"tenant": "acme"})
        handle = await pulse.outbox.enqueue(shop, job, 7)
    assert await rows(
        shop, "id::text, topic, payload, priority, default_attempts, key, metadata ->> 'tenant'"
    ) == [(handle.id, "send-receipt", b'{"order":7}', 3, 4, "receipt-7", "acme")]
    assert not handle.duplicate


async def test_every_option_has_its_parameter(shop: asyncpg.Connection[Any]) -> None:
    unique = pulse.Unique("k", on_conflict="throttle", period=timedelta(seconds=5))
    await pulse.outbox.enqueue(
        *(shop, "mail", {}),
        delay=timedelta(hours=1),
        max_attempts=2,
        start_within=timedelta(hours=2),
        lane="shop-7",
        job_id="0199c0de-0000-7000-8000-000000000001",
        unique=unique,
    )
    assert await rows(
        shop, "id::text, run_at > now(), max_attempts, start_within, lane, unique_key, on_conflict, period"
    ) == [
        (
            *("0199c0de-0000-7000-8000-000000000001", True, 2, timedelta(hours=2), "shop-7"),
            *("k", "throttle", timedelta(seconds=5)),
        )
    ]


async def test_rollback_leaves_nothing(shop: asyncpg.Connection[Any]) -> None:
    transaction = shop.transaction()
    await transaction.start()
    await pulse.outbox.enqueue(shop, send_receipt, 7)
    await transaction.rollback()
    assert await rows(shop, "id") == []


async def test_many_jobs_are_stored_through_a_connection_that_blocks(
    shop: asyncpg.Connection[Any], empty_database_dsn: str
) -> None:
    with psycopg.connect(empty_database_dsn) as connection:
        handles = pulse.outbox.enqueue_many(
            connection, "mail", [1, pulse.JobItem(2, key="k", lane="own")], lane="all"
        )
    assert await rows(shop, "id::text, payload, key, lane") == [
        (handles[0].id, b"1", None, "all"),
        (handles[1].id, b"2", "k", "own"),
    ]


async def test_value_that_no_relay_could_carry_is_an_invalid_argument(shop: asyncpg.Connection[Any]) -> None:
    with pytest.raises(pulse.InvalidArgument, match="jobs_topic_check"):
        await pulse.outbox.enqueue(shop, "t" * 256, {})


async def test_database_without_an_outbox_is_named(empty_database_dsn: str) -> None:
    connection = await asyncpg.connect(empty_database_dsn)
    with pytest.raises(pulse.InvalidArgument, match="pulse_outbox"):
        await pulse.outbox.enqueue(connection, "mail", {})
    await connection.close()
