"""Days of completed jobs are made and dropped beside other servers, readers, operators and lesser roles."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.work.retention import PostgresCompletedDayRepo
from tests.postgres.completed_jobs import DAY, add_completed, add_days, partitions, tables_of, today
from tests.postgres.day_rounds import WEEK, a_round, keep, name
from tests.postgres.sessions import Connection


async def test_servers_that_make_and_drop_at_once_do_not_fail(
    database: Database, connection: Connection
) -> None:
    await connection.execute(f"DROP TABLE pulse.{name(-1)}")
    await add_days(connection, 9, 10)
    await add_completed(connection, 5, 9 * DAY)

    await asyncio.gather(*(a_round(database) for _ in range(4)))
    await a_round(database)

    found = await partitions(connection)
    assert {name(0), name(-1), name(-2)} <= found
    assert not {name(9), name(10)} & found


async def test_day_whose_jobs_are_in_the_default_partition_is_not_tried_under_its_lock(
    connection: Connection, database_dsn: str
) -> None:
    """Every server tries it in each round. A reader of that partition would be in its way."""
    await connection.execute(f"DROP TABLE pulse.{name(0)}")
    await add_completed(connection, 1, timedelta())
    reader = await asyncpg.connect(database_dsn)
    await reader.execute("BEGIN; SELECT count(*) FROM pulse.completed_jobs_default")

    assert await connection.fetchval("SELECT pulse.add_completed_days_v1($1, 1)", today()) == []
    reader.terminate()


async def test_day_that_another_server_has_dropped_is_left(
    database: Database, connection: Connection
) -> None:
    repo = PostgresCompletedDayRepo(database)

    assert (await repo.delete_expired_completed(name(9), WEEK, after=None, limit=10)).is_taken
    assert (await repo.keep_longer(today() - 9 * DAY, WEEK, after=None, limit=10, without_own=False)).is_taken
    await connection.execute("DROP TABLE pulse.completed_jobs_kept")
    with pytest.raises(Unavailable, match="damaged"):
        await repo.delete_expired_completed("completed_jobs_kept", WEEK, after=None, limit=10)


async def test_reader_delays_the_drop_and_completions_do_not_wait_for_it(
    database: Database, connection: Connection, database_dsn: str
) -> None:
    """A long SELECT holds every partition. The drop gives up before a completion would."""
    await add_days(connection, 9)
    await add_completed(connection, 3, 9 * DAY)
    reader = await asyncpg.connect(database_dsn)
    await reader.execute("BEGIN; SELECT count(*) FROM pulse.completed_jobs")
    await connection.execute("SET lock_timeout = '100ms'")  # as complete_jobs

    ending = asyncio.Event()

    async def complete() -> int:
        done = 0
        while not ending.is_set():
            done += len(await add_completed(connection, 1, timedelta()))
            await asyncio.sleep(0)
        return done

    completing = asyncio.create_task(complete())
    await a_round(database)
    assert name(9) in await partitions(reader), "in use"
    await reader.execute("COMMIT")
    await a_round(database)
    ending.set()

    assert await completing > 0, "and none ran into its own lock_timeout"
    assert name(9) not in await partitions(reader)
    await reader.close()


async def test_policy_set_during_the_walk_prevents_the_drop(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 9)
    ids = await add_completed(connection, 3, 9 * DAY, "audit")
    repo = PostgresCompletedDayRepo(database)
    found = await repo.completed_days()
    await keep(database, "audit", "forever")

    assert await repo.drop_completed_day(today() - 9 * DAY, found.now) is None
    assert len(await tables_of(connection, *ids)) == 3
    await a_round(database)
    assert set((await tables_of(connection, *ids)).values()) == {"completed_jobs_kept"}


async def test_today_cannot_be_dropped(database: Database, connection: Connection) -> None:
    repo = PostgresCompletedDayRepo(database)
    for day in (today(), today() + DAY):
        assert await repo.drop_completed_day(day, datetime.now(UTC)) is None
    assert await repo.drop_completed_day(today() - 50 * DAY, datetime.now(UTC)) is None, "there is none"


async def test_role_that_only_reads_and_writes_rows_makes_and_drops_days(
    connection: Connection, database_dsn: str
) -> None:
    role = "pulse_rows_only"
    await connection.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
    try:
        await connection.execute(
            f"""GRANT USAGE ON SCHEMA pulse TO {role};
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}"""
        )
        await add_days(connection, 9)
        await connection.execute(f"SET ROLE {role}")
        with pytest.raises(Exception, match="permission denied for function"):
            await connection.execute("SELECT pulse.drop_completed_day_v1($1, now())", today() - 9 * DAY)
        await connection.execute(f"RESET ROLE; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO {role}")
        await connection.execute(f"SET ROLE {role}")
        assert (
            await connection.fetchval("SELECT pulse.drop_completed_day_v1($1, now())", today() - 9 * DAY) == 0
        )
        assert await connection.fetchval("SELECT pulse.add_completed_days_v1($1, 1)", today() - 9 * DAY)
        await connection.execute(f"DELETE FROM pulse.{name(9)}")
        with pytest.raises(Exception, match="must be owner"):
            await connection.execute(f"DROP TABLE pulse.{name(9)}")
    finally:
        await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
