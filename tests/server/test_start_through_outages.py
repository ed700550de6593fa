"""The database crashes while pulsed starts: pulsed waits for it, for a bounded time."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from faults.proxy import Proxy, database_proxy
from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import Unavailable
from pulse_server.database.connector import translated
from pulse_server.database.rights import through_outages
from pulse_server.database.schema import apply_migrations
from tests.eventually import PATIENCE_SECONDS
from tests.postgres_cluster import FAST_SETTINGS
from tests.rows import each_row
from tests.server.outage_postgres import OutagePostgres
from tests.server.pulsed_process import caller_of, starting_pulsed

# What a start sends, in this order: a part of the text of each statement.
MIGRATION = (
    *(
        b"pg_backend_pid",
        b"schema_migrations'",
        b"obj_description",
        b"pg_try_advisory_lock",
        b"CREATE SCHEMA",
    ),
    *(b"CREATE TABLE pulse.jobs", b"INSERT INTO pulse.schema_migrations", b"CREATE OR REPLACE FUNCTION"),
    *(b"COMMENT ON FUNCTION", b"pg_advisory_unlock"),
)
LOOK = (b"has_table_privilege", b"numbackends", b"schema_migrations'", b"applied_at FROM", b"obj_description")
PRIMING = (
    b"pulse.worker_states",
    b"pulse.topic_rules",
    b"pulse.topic_settings",
    b"add_completed_days_v1",
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[OutagePostgres]:
    # What a crash may take back with an asynchronous commit is no matter of this test.
    database = OutagePostgres(tmp_path / "cluster", FAST_SETTINGS | {"synchronous_commit": "on"})
    database.start()
    yield database
    database.close()


async def crash_at(proxy: Proxy, database: OutagePostgres, points: Sequence[bytes]) -> None:
    """Kill the database at the first statement with each text, before it is passed on, and start it again."""
    conditions = [proxy.freeze(after=points[0])]
    for following in [*points[1:], None]:
        condition = conditions[-1]
        await condition.has_begun.wait()
        await asyncio.to_thread(database.kill)
        proxy.cut()
        if following is not None:
            conditions.append(proxy.freeze(after=following))
        condition.heal()
        await asyncio.to_thread(database.start)


async def start_through_crashes(database: OutagePostgres, points: Sequence[bytes], *flags: str) -> None:
    async with database_proxy(database.dsn) as (proxy, dsn):
        crashing = asyncio.create_task(crash_at(proxy, database, points))
        async with starting_pulsed(dsn, *flags) as server:
            # Each time the database recovers, which takes seconds on a busy machine.
            async with asyncio.timeout(len(points) * PATIENCE_SECONDS):
                await crashing
            server.address = (await server.wait_for("serving"))["address"]
            async with caller_of(server) as stub:
                assert (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id
            assert "database_went_away" in {line["event"] for line in server.events}


async def test_start_goes_on_when_the_database_has_crashed_at_any_statement_of_it(
    database: OutagePostgres,
) -> None:
    await start_through_crashes(database, MIGRATION, "--migrate")
    await start_through_crashes(database, LOOK + PRIMING)


async def test_start_that_waits_for_the_database_ends_at_a_signal(database: OutagePostgres) -> None:
    await apply_migrations(database.dsn)
    async with database_proxy(database.dsn) as (proxy, dsn):
        with proxy.freeze(after=PRIMING[0]) as silence:
            async with starting_pulsed(dsn) as server:
                await silence.has_begun.wait()
                await asyncio.to_thread(database.kill)
                proxy.cut()
                await server.wait_for("database_went_away")
                server.signal()
                assert await server.ended() == 0


async def test_start_gives_up_on_a_database_that_does_not_come_back() -> None:
    async def fail() -> None:
        with translated("read_gate"):
            raise asyncpg.CannotConnectNowError("the database system is in recovery mode")

    nowhere = "postgres://pulse@127.0.0.1:1/pulse"
    with pytest.raises(Unavailable, match=r"The database does not answer: .*Does it run"):
        await through_outages(nowhere, fail, timedelta(0))


async def test_start_gives_up_on_a_database_that_goes_away_again_and_again(empty_database_dsn: str) -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        with translated("read_gate"):
            raise asyncpg.CannotConnectNowError("the database system is in recovery mode")

    with pytest.raises(Unavailable, match=r"did not answer \(read_gate"):
        await through_outages(empty_database_dsn, fail, timedelta(0))
    assert tries == 2


@each_row(
    "error",
    [
        asyncpg.InsufficientPrivilegeError("no"),
        asyncpg.UndefinedTableError("no"),
        asyncpg.InvalidPasswordError("no"),
    ],
)
async def test_start_ends_at_once_with_every_other_error(empty_database_dsn: str, error: Exception) -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        with translated("read_gate"):
            raise error

    with pytest.raises(Unavailable):
        await through_outages(empty_database_dsn, fail)
    assert tries == 1
