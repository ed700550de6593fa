"""`pulse.sql.enqueue_workflow` stores a workflow in the transaction of the application. ADR-0077"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import pulse
import pulse.sql
from tests.sdk.libraries import Transaction, done

p = pulse.Pulse("localhost:1")
blocking = pulse.SyncPulse("localhost:1")


@p.job("extract", max_attempts=7)
async def extract(day: int) -> None: ...


@blocking.job("load")
def load(day: int) -> None: ...


async def rows(database: asyncpg.Connection[asyncpg.Record]) -> dict[str, Any]:
    found = await database.fetch(
        "SELECT node.name, node.condition, job.* "
        "FROM pulse.workflow_jobs AS node JOIN pulse.jobs AS job ON job.id = node.job_id ORDER BY node.number"
    )
    return {row["name"]: row for row in found}


async def test_workflow_is_stored_at_the_commit(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    flow = p.workflow("nightly")
    first = flow.add(extract, 1)
    flow.add("load", {"day": 1}, after=first, priority=4, delay=timedelta(seconds=90))
    flow.add("notify", after="load", when="always", metadata={"who": "ada"})
    handle = await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
    assert await rows(database) == {}
    await done(transaction.commit())
    stored = await rows(database)
    assert list(stored) == ["extract", "load", "notify"]
    assert (stored["extract"]["payload"], stored["extract"]["max_attempts"]) == (b'{"day":1}', 7)
    assert [row["held"] for row in stored.values()] == [None, True, True]
    assert (stored["load"]["priority"], stored["notify"]["condition"]) == (4, "always")
    assert await database.fetchval("SELECT delay FROM pulse.workflow_jobs WHERE name = 'load'") == timedelta(
        seconds=90
    )
    assert handle.id == str(await database.fetchval("SELECT id FROM pulse.workflows"))
    assert {name: job.id for name, job in handle.jobs.items()} == {
        name: str(row["id"]) for name, row in stored.items()
    }


async def test_rollback_leaves_no_workflow(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    flow = p.workflow("nightly")
    flow.add(extract, 1)
    await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
    await done(transaction.rollback())
    assert await database.fetchval("SELECT count(*) FROM pulse.workflows") == 0


async def test_workflow_whose_transaction_was_rolled_back_can_be_stored_again(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    flow = p.workflow("nightly")
    flow.add(extract, 1)
    first = await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
    again = await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
    assert again.jobs["extract"].id == first.jobs["extract"].id
    await done(transaction.commit())
    assert list(await rows(database)) == ["extract"]


async def test_workflow_of_a_blocking_client(
    transaction: Transaction, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    flow = blocking.workflow("nightly")
    flow.add(load, 1)
    handle = await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
    await done(transaction.commit())
    assert isinstance(handle, pulse.SyncWorkflowHandle)
    assert list(await rows(database)) == ["load"]


async def test_mistakes_are_refused_with_a_sentence(transaction: Transaction) -> None:
    with pytest.raises(pulse.InvalidArgument, match="Give a workflow"):
        await done(pulse.sql.enqueue_workflow(transaction.connection, "nightly"))  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match="no jobs"):
        await done(pulse.sql.enqueue_workflow(transaction.connection, p.workflow("nightly")))
    flow = p.workflow("nightly")
    flow.add(extract.options(unique=pulse.Unique("k")), 1)
    with pytest.raises(pulse.InvalidArgument, match="is unique"):
        await done(pulse.sql.enqueue_workflow(transaction.connection, flow))
