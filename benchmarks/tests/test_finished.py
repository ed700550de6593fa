"""Finished jobs that the benchmark fills in by SQL are jobs as the server has them."""

from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.finished import fill_finished, partition_of
from pulse_server.database.schema import apply_migrations

JOBS = """
SELECT relation.relname, (job.submitted_at AT TIME ZONE 'UTC')::date, count(DISTINCT job.id)
FROM pulse.completed_jobs AS job JOIN pg_class AS relation ON relation.oid = job.tableoid
GROUP BY 1, 2
ORDER BY 2 DESC
"""
STATUSES = "SELECT DISTINCT status FROM pulse.all_jobs WHERE topic IN ('old', 'older')"


DROPPED = "SELECT pulse.drop_completed_day_v1($1, now())"


async def test_filled_jobs_are_completed_jobs_in_the_partitions_of_their_days(
    empty_database_dsn: str,
) -> None:
    days = [datetime.now(UTC).date() - timedelta(days=ago) for ago in (1, 2, 3)]
    await apply_migrations(empty_database_dsn)
    await fill_finished(empty_database_dsn, 60, days_ago=[1, 2, 3], topics=["old", "older"])
    connection = await asyncpg.connect(empty_database_dsn)
    try:
        found = [tuple(row) for row in await connection.fetch(JOBS)]
        statuses = [row["status"] for row in await connection.fetch(STATUSES)]
        dropped = [await connection.fetchval(DROPPED, day) for day in days]
    finally:
        await connection.close()
    assert found == [(partition_of(day), day, 20) for day in days]
    assert statuses == ["COMPLETED"]
    assert dropped == [20, 20, 20], "retention can drop them"


async def test_day_that_the_server_has_made_is_filled_too(database_dsn: str) -> None:
    """A server that ran before midnight has made the partition of what is yesterday now."""
    await fill_finished(database_dsn, 40, days_ago=[0, 1])
    connection = await asyncpg.connect(database_dsn)
    try:
        found = [tuple(row)[1:] for row in await connection.fetch(JOBS)]
    finally:
        await connection.close()
    today = datetime.now(UTC).date()
    assert found == [(today, 20), (today - timedelta(days=1), 20)]
