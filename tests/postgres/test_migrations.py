"""Migrations on a real database: once each, even if several servers start at once, and never half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database import schema
from pulse_server.database import schema as database_schema
from pulse_server.database.schema import (
    Migration,
    SchemaMismatch,
    apply_migrations,
    known_migrations,
    migration_status,
    require_current_schema,
)
from tests.eventually import PATIENCE_SECONDS, eventually

HASTY = timedelta(milliseconds=300)
FIRST = Migration(1, "0001_first", "CREATE TABLE pulse.first (id integer); SELECT pg_sleep(0.05);")
SECOND = Migration(2, "0002_second", "CREATE TABLE pulse.second (id integer);")
BROKEN = Migration(2, "0002_broken", "CREATE TABLE pulse.second (id integer); SELECT no_such_column;")
WIDER = Migration(2, "0002_wider", "ALTER TABLE pulse.first ADD COLUMN more integer;")
CONCURRENT = Migration(
    2, "0002_index", "-- pulse: no transaction\nCREATE INDEX CONCURRENTLY first_id ON pulse.first (id);"
)


async def ask(dsn: str, question: str) -> Any:
    connection = await asyncpg.connect(dsn, timeout=60)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def test_five_servers_that_start_together_apply_each_migration_once(empty_database_dsn: str) -> None:
    applied = await asyncio.gather(*[apply_migrations(empty_database_dsn, [FIRST, SECOND]) for _ in range(5)])

    assert sorted(name for names in applied for name in names) == ["0001_first", "0002_second"]
    assert await ask(empty_database_dsn, "SELECT count(*) FROM pulse.schema_migrations") == 2


async def test_second_run_applies_nothing(empty_database_dsn: str) -> None:
    names = [migration.name for migration in known_migrations()]

    assert await apply_migrations(empty_database_dsn) == [*names, "functions"]
    assert await apply_migrations(empty_database_dsn) == []
    await require_current_schema(empty_database_dsn)


async def test_files_are_numbered_from_one_without_a_gap() -> None:
    versions = [migration.version for migration in known_migrations()]

    assert versions == list(range(1, len(versions) + 1))


async def test_only_what_is_missing_is_applied(empty_database_dsn: str) -> None:
    await apply_migrations(empty_database_dsn, [FIRST])

    assert await apply_migrations(empty_database_dsn, [FIRST, SECOND]) == ["0002_second"]


async def test_index_may_be_built_concurrently_while_other_servers_wait(empty_database_dsn: str) -> None:
    applied = await asyncio.gather(
        *[apply_migrations(empty_database_dsn, [FIRST, CONCURRENT]) for _ in range(3)]
    )

    assert sorted(map(len, applied)) == [0, 0, 2]
    assert await ask(empty_database_dsn, "SELECT to_regclass('pulse.first_id') IS NOT NULL")


async def test_failing_migration_leaves_nothing_of_itself_and_keeps_those_before(
    empty_database_dsn: str,
) -> None:
    with pytest.raises(asyncpg.UndefinedColumnError):
        await apply_migrations(empty_database_dsn, [FIRST, BROKEN])

    assert await ask(empty_database_dsn, "SELECT to_regclass('pulse.second') IS NULL")
    assert await ask(empty_database_dsn, "SELECT max(version) FROM pulse.schema_migrations") == 1
    assert await apply_migrations(empty_database_dsn, [FIRST, SECOND]) == ["0002_second"]


async def test_changed_migration_is_refused(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    second = Migration(9002, "9002_second", "SELECT 1;")
    await apply_migrations(database_dsn, [*known_migrations(), second])
    changed = [*known_migrations(), replace(second, sql="SELECT 2;")]
    monkeypatch.setattr(schema, "known_migrations", lambda: changed)

    for attempt in (apply_migrations(database_dsn), require_current_schema(database_dsn)):
        with pytest.raises(SchemaMismatch, match="9002_second was applied with other content"):
            await attempt


async def test_database_of_a_build_from_before_the_first_release_is_refused_with_the_way_out(
    empty_database_dsn: str,
) -> None:
    """Its first migrations were others, and more of them."""
    await apply_migrations(empty_database_dsn, [FIRST, SECOND])

    for attempt in (apply_migrations(empty_database_dsn), require_current_schema(empty_database_dsn)):
        with pytest.raises(SchemaMismatch, match=r"before the first release.*DROP SCHEMA pulse CASCADE"):
            await attempt

    await ask(empty_database_dsn, "DROP SCHEMA pulse CASCADE")
    assert await apply_migrations(empty_database_dsn)


async def test_newer_schema_is_refused(database_dsn: str) -> None:
    future = Migration(9999, "9999_future", "SELECT 1;")
    await apply_migrations(database_dsn, [*known_migrations(), future])

    for attempt in (apply_migrations(database_dsn), require_current_schema(database_dsn)):
        with pytest.raises(
            SchemaMismatch, match=r"newer than this server: it has 9999_future.*Upgrade pulsed"
        ):
            await attempt


async def test_schema_that_is_behind_is_refused_with_the_command_and_left_alone(
    empty_database_dsn: str,
) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"0001_schema.* not applied.*`pulsed migrate`.*`pulsed --migrate`"
    ):
        await require_current_schema(empty_database_dsn)

    assert await ask(empty_database_dsn, "SELECT to_regnamespace('pulse') IS NULL")


async def test_status_lists_for_each_migration_whether_it_is_applied(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_migrations(empty_database_dsn, [FIRST, SECOND])
    third = Migration(3, "0003_third", "SELECT 1;")
    monkeypatch.setattr(schema, "known_migrations", lambda: [replace(FIRST, sql="SELECT 2;"), third])

    status = await migration_status(empty_database_dsn)

    assert [
        (entry.name, entry.applied_at is not None, entry.is_known, entry.is_changed) for entry in status
    ] == [
        ("0001_first", True, True, True),
        ("0002_second", True, False, False),
        ("0003_third", False, True, False),
    ]


async def test_server_that_dies_while_migrating_lets_the_next_one_in(empty_database_dsn: str) -> None:
    sleeper = Migration(1, "0001_sleeper", "SELECT pg_sleep(600);")
    dying = asyncio.create_task(apply_migrations(empty_database_dsn, [sleeper]))
    connection = await asyncpg.connect(empty_database_dsn, timeout=60)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await connection.fetchval(  # noqa: ASYNC110 - the database rings no bell
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"
        ):
            await asyncio.sleep(0.01)
    await connection.close()
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the driver makes of a killed session
        await dying

    assert await apply_migrations(empty_database_dsn, [FIRST]) == ["0001_first"]


@asynccontextmanager
async def long_transaction(dsn: str, statement: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that did this a while ago, and whose transaction is still open."""
    connection = await asyncpg.connect(dsn, timeout=60, server_settings={"application_name": "a report"})
    await connection.execute(f"BEGIN; {statement}")
    try:
        yield connection
    finally:
        await connection.close()


async def test_migration_that_is_blocked_lets_others_through_and_names_its_blocker(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TIMEOUT", 2 * HASTY)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_PAUSE", HASTY)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TRIES", 2)
    await apply_migrations(empty_database_dsn, [FIRST])

    async with long_transaction(empty_database_dsn, "SELECT count(*) FROM pulse.first") as reader:
        migrating = asyncio.create_task(apply_migrations(empty_database_dsn, [FIRST, WIDER]))
        # Queues behind the migration when it comes while that waits, but not for longer than it waits.
        while not migrating.done():
            assert (
                await asyncio.wait_for(
                    ask(empty_database_dsn, "SELECT count(*) FROM pulse.first"), PATIENCE_SECONDS
                )
                == 0
            )
        with pytest.raises(Unavailable, match=rf"0002_wider.*process {reader.get_server_pid()}.*a report"):
            await migrating

    assert await apply_migrations(empty_database_dsn, [FIRST, WIDER]) == ["0002_wider"]


async def test_blocked_migration_is_applied_once_the_way_is_free(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TIMEOUT", HASTY / 10)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_PAUSE", HASTY / 10)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TRIES", 1000)
    await apply_migrations(empty_database_dsn, [FIRST])

    async with long_transaction(empty_database_dsn, "SELECT count(*) FROM pulse.first"):
        migrating = asyncio.create_task(apply_migrations(empty_database_dsn, [FIRST, WIDER]))
        waits = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        while not await ask(empty_database_dsn, waits):
            assert not migrating.done()

    assert await migrating == ["0002_wider"]


async def test_turn_that_never_comes_is_given_up(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_TURN", HASTY)
    lock = f"SELECT pg_advisory_lock({database_schema._LOCK_KEY})"

    async with long_transaction(empty_database_dsn, lock) as holder:
        with pytest.raises(Unavailable, match="is held by") as caught:
            await apply_migrations(empty_database_dsn, [FIRST])

        who = f"process {holder.get_server_pid()} of role {await holder.fetchval('SELECT current_user')}"
        database = await holder.fetchval("SELECT current_database()")
        assert f"It is held by {who}, application a report, database {database}" in str(caught.value)


async def test_prepared_transaction_that_keeps_the_turn_is_named(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_TURN", HASTY)
    lock = f"SELECT pg_advisory_xact_lock({database_schema._LOCK_KEY}); PREPARE TRANSACTION 'turn'"

    async with long_transaction(empty_database_dsn, lock) as session:
        try:
            with pytest.raises(Unavailable, match="is held by a prepared transaction"):
                await apply_migrations(empty_database_dsn, [FIRST])
        finally:
            await session.execute("ROLLBACK PREPARED 'turn'")


async def test_wait_for_a_turn_is_logged_with_the_session_that_has_it(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_PAUSE", HASTY / 10)
    lock = f"SELECT pg_advisory_lock_shared({database_schema._LOCK_KEY})"

    with caplog.at_level("INFO"):
        async with long_transaction(empty_database_dsn, lock) as holder:
            migrating = asyncio.create_task(apply_migrations(empty_database_dsn, [FIRST]))
            await eventually(lambda: "migration_waits" in caplog.messages, "the wait is logged")
        await migrating

    waits = [vars(record) for record in caplog.records if record.getMessage() == "migration_waits"]
    assert f"process {holder.get_server_pid()} " in waits[0]["blocked_by"]
    assert waits[0]["migration"] == "0001_first"
