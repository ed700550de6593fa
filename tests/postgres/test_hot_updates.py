"""A claim, a heartbeat and a release write no index entry: their updates are HOT if the page has room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulse_server.jobs.leases import slot_arguments
from pulse_server.jobs.new_jobs import Unique
from pulse_server.jobs.reads import claim_columns
from pulse_server.jobs.rules import Claim
from tests.fakes.store import LEASE, Store, a_job, room
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import TRANSITIONS

# Fewer than fill a page up to its fillfactor: each row has room for a second version.
FEW = 10
WRITTEN = {"status", "attempts", "locked_by", "lease_until", "started_at", "delivered"}

_UPDATES = """
SELECT pg_stat_get_xact_tuples_updated('pulse.jobs'::regclass),
       pg_stat_get_xact_tuples_hot_updated('pulse.jobs'::regclass)
"""
Act = Callable[[Connection, list[Claim]], Awaitable[object]]


async def claim(connection: Connection, _claims: list[Claim]) -> object:
    slots = slot_arguments(room("A", FEW, confirms=True), LEASE)
    return await connection.fetch(TRANSITIONS["claim_batch"], ["email"], *slots, None, None)


async def claim_across(connection: Connection, _claims: list[Claim]) -> object:
    slots = slot_arguments(room("A", FEW, confirms=True), LEASE)
    return await connection.fetch(
        TRANSITIONS["claim_across_topics"], ["email", "sms"], *slots, None, None, FEW, FEW
    )


async def beat(connection: Connection, claims: list[Claim]) -> object:
    return await connection.fetch(
        TRANSITIONS["extend_leases"], *claim_columns(claims), LEASE, None, None, None
    )


async def release(connection: Connection, claims: list[Claim]) -> object:
    return await connection.fetch(TRANSITIONS["release_jobs"], *claim_columns(claims), None, [])


async def progress(connection: Connection, claims: list[Claim]) -> object:
    reports = ['{"fraction": 0.5, "text": "half", "number": 1}'] * FEW
    columns = *claim_columns(claims), LEASE, None, reports, None
    return await connection.fetch(TRANSITIONS["extend_leases"], *columns)


@pytest.mark.parametrize("act", [claim, claim_across, beat, release, progress], ids=lambda act: act.__name__)
async def test_update_is_hot(store: Store, connection: Connection, act: Act) -> None:
    await connection.execute("TRUNCATE pulse.jobs")
    await store.submit(*[a_job() for _ in range(FEW)])
    claims: list[Claim] = []
    if act in (beat, release, progress):
        claims = await store.claim("A", count=FEW, confirms=True)
        # The versions of before the claim make room.
        await connection.execute("VACUUM pulse.jobs")

    async with connection.transaction():
        await act(connection, sorted(claims))
        assert tuple(await connection.fetchrow(_UPDATES) or ()) == (FEW, FEW)


async def test_no_index_names_a_column_that_a_claim_writes(connection: Connection) -> None:
    """In its key, its INCLUDE list or its predicate: one would end HOT updates for every row."""
    named = await connection.fetch(
        """
        SELECT DISTINCT index.indexrelid::regclass::text AS index, attribute.attname::text AS column
        FROM pg_index AS index
        JOIN pg_depend AS part ON part.classid = 'pg_class'::regclass AND part.objid = index.indexrelid
            AND part.refclassid = 'pg_class'::regclass AND part.refobjid = index.indrelid
        JOIN pg_attribute AS attribute
            ON attribute.attrelid = index.indrelid AND attribute.attnum = part.refobjsubid
        WHERE index.indrelid = 'pulse.jobs'::regclass
        """
    )

    columns = {row["column"] for row in named}
    assert {"topic", "queued", "ended_as", "finished_at"} <= columns, "the query finds columns of predicates"
    assert not columns & WRITTEN, [tuple(row) for row in named if row["column"] in WRITTEN]


async def test_claim_of_unique_jobs_is_hot(store: Store, connection: Connection) -> None:
    """Their keys stand in an index, and a claim leaves them there. ADR-0066"""
    await connection.execute("TRUNCATE pulse.jobs")
    await store.repo.insert_rich_jobs([a_job(unique=Unique(f"shop-{n}")) for n in range(FEW)])

    async with connection.transaction():
        await claim(connection, [])
        assert tuple(await connection.fetchrow(_UPDATES) or ()) == (FEW, FEW)
