"""Days of completed jobs: made ahead, dropped as a whole, and row by row where a topic's policy differs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.database.connections import Database
from pulse_server.work import retention
from pulse_server.work.retention import DayKeeper, PostgresCompletedDayRepo
from tests.fakes.replica import Replica
from tests.postgres.completed_jobs import DAY, add_completed, add_days, partitions, tables_of, today
from tests.postgres.day_rounds import INTERVAL, WEEK, a_round, keep, name
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)


async def test_today_and_two_days_ahead_have_partitions(database: Database, connection: Connection) -> None:
    for ahead in range(3):
        # After midnight, the template that was made before it lacks the last of them.
        await connection.execute(f"DROP TABLE IF EXISTS pulse.{name(-ahead)}")

    await a_round(database)

    assert {name(0), name(-1), name(-2)} <= await partitions(connection)
    (job_id,) = await add_completed(connection, 1, timedelta())
    assert await tables_of(connection, job_id) == {job_id: name(0)}


async def test_day_is_dropped_when_its_last_moment_is_past_retention(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 9, 8, 7, 6, 1)
    old = await add_completed(connection, 3, 9 * DAY)
    young = await add_completed(connection, 3, 6 * DAY)

    await a_round(database)

    assert not {name(9), name(8)} & await partitions(connection)
    assert {name(7), name(6), name(1), name(0)} <= await partitions(connection)
    assert (await tables_of(connection, *old), len(await tables_of(connection, *young))) == ({}, 3)


async def test_nothing_is_dropped_where_completed_jobs_are_kept_forever(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 300)
    ids = await add_completed(connection, 3, 300 * DAY)

    await a_round(database, kept=None)

    assert len(await tables_of(connection, *ids)) == 3


@pytest.mark.parametrize("kept", [None, 365 * DAY])
async def test_jobs_that_are_kept_for_longer_than_sixty_days_move_to_one_table(
    database: Database, connection: Connection, kept: timedelta | None
) -> None:
    """A partition for each day of a year would slow down every submit."""
    await add_days(connection, 100, 62, 59)
    await keep(database, "thumbnails", 5 * DAY)
    old = await add_completed(connection, 3, 100 * DAY)
    expired = await add_completed(connection, 2, 100 * DAY, "thumbnails")
    young = await add_completed(connection, 1, 59 * DAY)

    await a_round(database, kept=kept)

    assert not {name(100), name(62)} & await partitions(connection)
    assert await tables_of(connection, *old) == dict.fromkeys(old, "completed_jobs_kept")
    assert await tables_of(connection, *expired) == {}
    assert await tables_of(connection, *young) == dict.fromkeys(young, name(59))


async def test_moved_jobs_expire_row_by_row(database: Database, connection: Connection) -> None:
    await add_days(connection, 100)
    ids = await add_completed(connection, 3, 100 * DAY)
    await a_round(database, kept=365 * DAY)

    await a_round(database, kept=90 * DAY)

    assert await tables_of(connection, *ids) == {}


async def test_retention_below_a_day_never_drops_today(database: Database, connection: Connection) -> None:
    # Not longer ago: in the first seconds of a day, that would be yesterday.
    ids = await add_completed(connection, 2, timedelta(milliseconds=2))

    await a_round(database, kept=timedelta(milliseconds=1))

    assert len(await tables_of(connection, *ids)) == 2, "its day goes once it is over"
    assert name(0) in await partitions(connection)


async def test_topic_that_is_kept_longer_outlives_its_day(database: Database, connection: Connection) -> None:
    await add_days(connection, 9)
    await keep(database, "audit", "forever")
    await keep(database, "month", 30 * DAY)
    await keep(database, "nine", 8 * DAY)
    forever = await add_completed(connection, 3, 9 * DAY, "audit")
    month = await add_completed(connection, 3, 9 * DAY, "month")
    over = await add_completed(connection, 3, 9 * DAY, "nine")
    other = await add_completed(connection, 3, 9 * DAY, "mail")

    await a_round(database)

    assert name(9) not in await partitions(connection)
    assert set((await tables_of(connection, *forever, *month)).values()) == {"completed_jobs_kept"}
    assert await tables_of(connection, *over, *other) == {}


async def test_kept_job_goes_when_its_own_time_is_over(database: Database, connection: Connection) -> None:
    await add_days(connection, 9)
    await keep(database, "audit", "forever")
    ids = await add_completed(connection, 3, 9 * DAY, "audit")
    await a_round(database)
    assert len(await tables_of(connection, *ids)) == 3

    await keep(database, "audit", 8 * DAY)
    await a_round(database)

    assert await tables_of(connection, *ids) == {}


async def test_topic_that_is_kept_shorter_is_deleted_row_by_row(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DAY_BATCH", 4)
    await add_days(connection, 3, 2, 1)
    await keep(database, "short", HOUR)
    gone = [
        *(await add_completed(connection, 3, 3 * DAY, "short")),
        *(await add_completed(connection, 3, DAY, "short")),
        *(await add_completed(connection, 3, 2 * HOUR, "short")),
    ]
    stays = [
        *(await add_completed(connection, 5, 3 * DAY, "mail")),
        *(await add_completed(connection, 5, timedelta(minutes=1), "short")),
        *(await add_completed(connection, 5, 2 * HOUR, "mail")),
    ]

    await a_round(database)

    assert await tables_of(connection, *gone) == {}
    assert len(await tables_of(connection, *stays)) == 15


async def test_policy_holds_where_completed_jobs_are_kept_forever(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 9)
    await keep(database, "short", DAY)
    short = await add_completed(connection, 2, 9 * DAY, "short")
    other = await add_completed(connection, 2, 9 * DAY, "mail")

    await a_round(database, kept=None)

    assert (await tables_of(connection, *short), len(await tables_of(connection, *other))) == ({}, 2)


async def test_day_that_was_swept_is_not_walked_again_until_a_policy_changes(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_days(connection, 3)
    await keep(database, "short", HOUR)
    repo = PostgresCompletedDayRepo(database)
    walked: list[str] = []

    async def note(partition: str, *args: Any, **options: Any) -> Any:
        walked.append(partition)
        return await PostgresCompletedDayRepo.delete_expired_completed(repo, partition, *args, **options)

    monkeypatch.setattr(repo, "delete_expired_completed", note)
    keeper = DayKeeper(repo, Replica().publisher, WEEK, interval=INTERVAL)

    async def days_walked() -> set[str]:
        walked.clear()
        while await keeper.tick() < INTERVAL:
            pass
        return {partition for partition in walked if partition == name(3)}

    assert await days_walked() == {name(3)}
    assert await days_walked() == set()
    await keep(database, "other", HOUR)
    assert await days_walked() == {name(3)}


async def test_day_is_walked_again_when_the_grace_time_of_a_shorter_policy_has_passed(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 5)
    await keep(database, "swept", DAY)
    await keep(database, "short", DAY, grace=HOUR)
    swept = await add_completed(connection, 2, 5 * DAY, "swept")
    short = await add_completed(connection, 2, 5 * DAY, "short")
    keeper = DayKeeper(PostgresCompletedDayRepo(database), Replica().publisher, WEEK, interval=INTERVAL)

    async def left() -> tuple[int, int]:
        while await keeper.tick() < INTERVAL:
            pass
        return len(await tables_of(connection, *swept)), len(await tables_of(connection, *short))

    assert await left() == (0, 2)
    await connection.execute("UPDATE pulse.topic_rules SET shorter_from = now() WHERE topic = 'short'")
    assert await left() == (0, 0)


async def test_dropped_day_leaves_jobs_whose_longer_policy_is_in_its_grace_time(
    database: Database, connection: Connection
) -> None:
    await add_days(connection, 9)
    await keep(database, "audit", 30 * DAY)
    await keep(database, "audit", WEEK, grace=HOUR)
    audit = await add_completed(connection, 2, 9 * DAY, "audit")

    await a_round(database)
    assert name(9) not in await partitions(connection)
    assert await tables_of(connection, *audit) == dict.fromkeys(audit, "completed_jobs_kept")

    await connection.execute("UPDATE pulse.topic_rules SET shorter_from = now()")
    await a_round(database)
    assert await tables_of(connection, *audit) == {}


async def test_jobs_without_a_day_are_seen_and_deleted_row_by_row(
    database: Database, connection: Connection
) -> None:
    await keep(database, "audit", "forever")
    old = await add_completed(connection, 3, 8 * DAY)
    young = await add_completed(connection, 3, 5 * DAY)
    kept = await add_completed(connection, 3, 8 * DAY, "audit")
    assert set((await tables_of(connection, *old)).values()) == {"completed_jobs_default"}

    await a_round(database)

    assert await tables_of(connection, *old) == {}
    assert len(await tables_of(connection, *young, *kept)) == 6


async def test_day_that_has_jobs_without_a_partition_stays_there(
    database: Database, connection: Connection
) -> None:
    await connection.execute(f"DROP TABLE pulse.{name(0)}")
    await connection.execute(f"DROP TABLE pulse.{name(-1)}")
    (job_id,) = await add_completed(connection, 1, timedelta())

    await a_round(database)

    assert name(-1) in await partitions(connection), "the other days are made all the same"
    assert await tables_of(connection, job_id) == {job_id: "completed_jobs_default"}


async def test_large_jobs_move_in_several_statements(database: Database, connection: Connection) -> None:
    await add_days(connection, 9)
    await keep(database, "audit", "forever")
    ids = await add_completed(connection, 12, 9 * DAY, "audit", payload=b"x" * 1024 * 1024)
    repo = PostgresCompletedDayRepo(database)

    first = await repo.keep_longer(today() - 9 * DAY, WEEK, after=None, limit=100, without_own=False)
    assert (first.looked_at, first.changed, first.left_over) == (12, 8, 4)
    await a_round(database)

    assert set((await tables_of(connection, *ids)).values()) == {"completed_jobs_kept"}
