"""Middleware and traces around the enqueues of `pulse.sql`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import pytest

import pulse
import pulse.sql
from tests.sdk.libraries import Transaction, done
from tests.sdk.traces import Traces

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


def client_with_middleware() -> pulse.Pulse:
    client = pulse.Pulse("localhost:1")

    @client.enqueue_middleware
    async def add_tenant(enqueue: pulse.Enqueue, call_next: Any) -> None:
        enqueue.metadata["tenant"] = "7"
        enqueue.priority = 5
        await call_next()

    return client


async def test_middleware_surrounds_the_enqueue(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = client_with_middleware()
    job = client.register("mail", lambda: None)
    handles = [await done(pulse.sql.enqueue(transaction.connection, job))]
    handles += await done(pulse.sql.enqueue_many(transaction.connection, job, [None]))
    await done(transaction.commit())
    for handle in handles:
        row = await job_of(database, handle)
        assert (row["metadata"], row["priority"]) == ('{"tenant": "7"}', 5)


def test_blocking_middleware_surrounds_the_enqueue(database_dsn: str) -> None:
    client = pulse.SyncPulse("localhost:1")

    @client.enqueue_middleware
    def add_tenant(enqueue: pulse.Enqueue, call_next: Any) -> None:
        enqueue.metadata["tenant"] = "7"
        call_next()

    job = client.register("mail", lambda: None)
    with psycopg.connect(database_dsn) as connection:
        handle = pulse.sql.enqueue(connection, job)
        row = connection.execute("SELECT metadata FROM pulse.jobs WHERE id = %s", [handle.id]).fetchone()
    assert row == ({"tenant": "7"},)


def test_middleware_that_waits_needs_an_async_connection(database_dsn: str) -> None:
    import asyncio

    client = pulse.Pulse("localhost:1")

    @client.enqueue_middleware
    async def wait(enqueue: pulse.Enqueue, call_next: Any) -> None:
        await asyncio.sleep(0)
        await call_next()

    job = client.register("mail", lambda: None)
    with (
        psycopg.connect(database_dsn) as connection,
        pytest.raises(pulse.InvalidMiddleware, match="awaited something besides"),
    ):
        pulse.sql.enqueue(connection, job)


# ---------------------------------------------------------------- traces


async def test_job_carries_the_trace_of_its_enqueue(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record], traces: Traces
) -> None:
    handle = await done(pulse.sql.enqueue(transaction.connection, send_receipt, Receipt(7)))
    await done(transaction.commit())
    (span,) = traces.named("enqueue send-receipt")
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == handle.id
    assert f"{span.context.trace_id:032x}" in (await job_of(database, handle))["metadata"]
