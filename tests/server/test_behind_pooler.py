"""A pooler of transactions stands between pulsed and its database: nothing may rest on a session.

Where this machine has a PgBouncer, it is used. Elsewhere the server is configured as if there were one, and
the test checks that its sessions keep nothing and that it relies on nothing in them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.database import schema
from pulse_server.database.connections import HOT_PLANS, Database
from pulse_server.database.connector import translated
from pulse_server.database.schema import (
    SchemaMismatch,
    apply_migrations,
    migration_status,
    require_current_schema,
)
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.interface import complete, enqueue
from tests.server.pooler import PROGRAM, pgbouncer
from tests.transport.pulse_server_under_test import server_under_test

AT_ONCE = 12
SESSION = """
SELECT (SELECT count(*) FROM pg_prepared_statements) AS prepared,
       current_setting('plan_cache_mode') AS plan_cache_mode,
       current_setting('enable_seqscan') AS enable_seqscan,
       current_setting('statement_timeout') AS statement_timeout
"""


@pytest.fixture
def pooled_dsn(database_dsn: str, tmp_path: Path) -> Iterator[str]:
    """The address of a database of one's own, through a pooler if there is one."""
    if PROGRAM is None:
        yield database_dsn
        return
    with pgbouncer(database_dsn, tmp_path) as dsn:
        yield dsn


@pytest.fixture
def timeout_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STATEMENT_TIMEOUT", timedelta(seconds=5))


@pytest.fixture
async def database(pooled_dsn: str) -> AsyncIterator[Database]:
    database = Database(pooled_dsn, behind_pooler=True)
    yield database
    await database.close()


@pytest.fixture
async def plain(database_dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to the database itself."""
    connection = await asyncpg.connect(database_dsn, timeout=60)
    yield connection
    connection.terminate()


async def test_jobs_go_all_their_ways(
    database: Database, plain: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(plain))
    await asyncio.gather(*[store.submit(a_job()) for _ in range(3 * AT_ONCE)])
    batches = await asyncio.gather(*[store.claim(f"worker-{n}", 3) for n in range(AT_ONCE)])
    claims = [claim for batch in batches for claim in batch]
    assert len(set(claims)) == 3 * AT_ONCE

    beaten, failing, done = claims[::3], claims[1::3], claims[2::3]
    await asyncio.gather(
        *[store.repo.extend_leases([claim], LEASE) for claim in beaten],
        *[store.repo.fail_jobs([failure(claim)]) for claim in failing],
        *[store.repo.complete_jobs([claim]) for claim in done],
    )

    assert await store.repo.current_claims(claims) == set(beaten)
    counts = await plain.fetch("SELECT status, count(*) FROM pulse.all_jobs GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in counts] == [
        (name, AT_ONCE) for name in ("COMPLETED", "RETRYING", "RUNNING")
    ]


@pytest.mark.usefixtures("timeout_of_a_server")
async def test_statement_has_its_settings_in_its_own_transaction_and_leaves_nothing_behind(
    database: Database, pooled_dsn: str
) -> None:
    pools = (database.hot, database.beats)
    for _ in range(2):  # the second time in sessions that have been used
        answers = await asyncio.gather(
            *[pool.fetch("session", SESSION) for pool in pools for _ in range(AT_ONCE)]
        )
        for (row,) in answers:
            assert row["prepared"] == 0
            assert row["plan_cache_mode"] == HOT_PLANS["plan_cache_mode"]
            assert row["enable_seqscan"] == HOT_PLANS["enable_seqscan"]
            assert row["statement_timeout"] == "4500ms"

    # The next client of these sessions finds them as they were.
    others = Database(pooled_dsn, behind_pooler=True)
    for (row,) in await asyncio.gather(*[others.probe.fetch("session", SESSION) for _ in range(AT_ONCE)]):
        assert (row["prepared"], row["plan_cache_mode"], row["enable_seqscan"]) == (0, "auto", "on")
    await others.close()


async def test_statement_that_fails_takes_its_transaction_with_it(database: Database) -> None:
    repo = PostgresJobRepo(database)
    for _ in range(AT_ONCE):
        with pytest.raises(asyncpg.DataError):  # refused by the driver, in the middle of the transaction
            await repo.insert_jobs([a_job(priority=2**40)])
        with pytest.raises(asyncpg.DivisionByZeroError):  # refused by the database
            await database.hot.fetch("spoil", "UPDATE pulse.dispatch_control SET paused = true RETURNING 1/0")
    assert await repo.insert_jobs([a_job()])
    assert not await database.hot.fetch("look", "SELECT FROM pulse.dispatch_control WHERE paused")


async def test_applications_enqueue_and_complete_and_leave_nothing_behind(
    pooled_dsn: str, plain: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """More applications than sessions of the pooler, and a server behind the same one."""
    applications = [
        await asyncpg.connect(pooled_dsn, timeout=60, statement_cache_size=0) for _ in range(AT_ONCE)
    ]

    async def enqueue_two(number: int) -> None:
        async with applications[number].transaction():
            await enqueue(applications[number], topic="mail", payload=b"1")
            await enqueue(applications[number], topic="mail", payload=b"1", key=f"k{number % 2}", lane="l")

    async with (
        server_under_test(pooled_dsn, behind_pooler=True) as server,
        server.worker(capacity=AT_ONCE) as worker,
    ):
        await asyncio.gather(*map(enqueue_two, range(AT_ONCE)))
        jobs = await worker.take(AT_ONCE)

        async def complete_one(number: int) -> None:
            job = jobs[number]
            async with applications[number].transaction():
                await complete(applications[number], Claim(job.job_id, "w1", job.attempt, job.run))

        await asyncio.gather(*map(complete_one, range(AT_ONCE)))
        counts = await plain.fetch("SELECT status, count(*) FROM pulse.all_jobs GROUP BY 1 ORDER BY 1")
        assert counts[0]["count"] == AT_ONCE
        assert sum(row["count"] for row in counts) == AT_ONCE + 2, "a key is stored once"
        for row in await asyncio.gather(*(application.fetchrow(SESSION) for application in applications)):
            assert row is not None
            assert (row["prepared"], row["plan_cache_mode"], row["enable_seqscan"]) == (0, "auto", "on")
    for application in applications:
        application.terminate()


async def test_server_serves_without_a_session_that_listens(
    pooled_dsn: str, plain: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with (
        server_under_test(pooled_dsn, behind_pooler=True) as server,
        server.worker(capacity=5) as worker,
    ):
        ids = await server.submit_many(20)
        taken = []
        for _ in ids:
            job = await worker.take_one()
            await worker.complete(job)
            taken.append(job.job_id)
        assert sorted(taken) == sorted(ids)
        assert not await plain.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND (query ILIKE 'listen%' OR query LIKE '%pg_notify%') "
            "AND pid <> pg_backend_pid()"
        )


async def test_schema_is_looked_at_but_not_changed_through_a_pooler(
    pooled_dsn: str, plain: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_pooled(_: object) -> bool:
        return True

    if PROGRAM is None:
        monkeypatch.setattr(schema, "_is_pooled", is_pooled)
    assert await apply_migrations(pooled_dsn) == []  # nothing to do needs no session
    await asyncio.gather(*[require_current_schema(pooled_dsn) for _ in range(AT_ONCE)])
    await plain.execute("DELETE FROM pulse.schema_migrations")

    with pytest.raises(
        SchemaMismatch, match=r"pulsed migrate.* with DB_HOST pointing at the database itself"
    ):
        await apply_migrations(pooled_dsn)
    assert (await migration_status(pooled_dsn))[-1].applied_at is None


async def test_server_without_the_setting_of_its_pooler_names_it(pooled_dsn: str) -> None:
    database = Database(pooled_dsn)
    try:
        with pytest.raises(Unavailable, match="PULSE_DB_POOLER=on"):
            await PostgresJobRepo(database).database_now() if PROGRAM else _refuse_settings()
    finally:
        await database.close()


def _refuse_settings() -> None:
    """As PgBouncer does."""
    with translated("database_now"):
        raise asyncpg.ProtocolViolationError("unsupported startup parameter: statement_timeout")
