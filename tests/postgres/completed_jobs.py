"""Completed jobs in their partitions, made in a moment."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from tests.postgres.sessions import Connection

DAY = timedelta(days=1)


def today() -> date:
    return datetime.now(UTC).date()


async def add_days(connection: Connection, *days_ago: int) -> None:
    """Make the partitions of days that have passed."""
    for ago in days_ago:
        await connection.execute("SELECT pulse.add_completed_days_v1($1, 1)", today() - ago * DAY)


async def add_completed(
    connection: Connection, count: int, ago: timedelta, topic: str = "mail", payload: bytes = b"{}"
) -> list[str]:
    """Jobs that were completed that long ago, an hour after they were submitted. Returns their ids."""
    rows = await connection.fetch(
        """INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, started_at, finished_at, priority,
                                             attempts, max_attempts, delivered, topic, payload, finished_by)
           SELECT gen_random_uuid(), now() - $2::interval - interval '1 hour' + n * interval '1 us', now(),
                  now(), now() - $2::interval, 0, 1, 5, true, $3, $4, 'worker-1'
           FROM generate_series(1, $1::int) AS n RETURNING id""",
        *(count, ago, topic, payload),
    )
    return [str(row["id"]) for row in rows]


async def tables_of(connection: Connection, *job_ids: str) -> dict[str, str]:
    """The partitions that the jobs are in."""
    rows = await connection.fetch(
        "SELECT id, tableoid::regclass::text AS name FROM pulse.completed_jobs WHERE id = ANY($1::uuid[])",
        [*job_ids],
    )
    return {str(row["id"]): row["name"].removeprefix("pulse.") for row in rows}


async def partitions(connection: Connection) -> set[str]:
    rows = await connection.fetch(
        "SELECT relid::regclass::text AS name FROM pg_partition_tree('pulse.completed_jobs') WHERE isleaf"
    )
    return {row["name"].removeprefix("pulse.") for row in rows}


async def put_back(connection: Connection, job_id: str) -> None:
    """Leave the job as a server of before the partitions did: completed, in pulse.jobs."""
    columns = """id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, max_attempts,
                 delivered, topic, payload, finished_by, idempotency_key, schedule_id, last_error, metadata,
                 history"""
    await connection.execute(
        f"""WITH moved AS (DELETE FROM pulse.completed_jobs WHERE id = $1 RETURNING *)
            INSERT INTO pulse.jobs ({columns}, queued, status)
            SELECT {columns}, false, 'COMPLETED' FROM moved""",
        job_id,
    )
