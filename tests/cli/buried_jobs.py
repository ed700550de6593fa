"""Dead letters that tests put beside the server's back, and what became of them."""

import asyncio
from typing import Any

import asyncpg


def sql(dsn: str, statement: str, *arguments: object) -> list[Any]:
    """Run a statement beside the server's back. Returns its rows."""

    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def bury(
    dsn: str, topic: str, count: int, error: str = "connection refused", *, apart: str = "10 seconds"
) -> None:
    """Have so many dead letters on a topic, the newest as old as they are apart."""
    sql(
        dsn,
        """
        INSERT INTO pulse.jobs (id, submitted_at, next_run_at, started_at, finished_at, attempts,
            max_attempts, queued, delivered, status, topic, payload, last_error, ended_as)
        SELECT gen_random_uuid(), at, at, at, at, 1, 1, false, true, 'DEAD_LETTERED', $1, '', $3,
            'DEAD_LETTERED'
        FROM generate_series(1, $2::int) AS number,
            LATERAL (SELECT now() - number * $4::text::interval AS at) AS submitted
        """,
        *(topic, count, error, apart),
    )


def statuses(dsn: str, topic: str) -> dict[str, int]:
    rows = sql(dsn, "SELECT status, count(*) FROM pulse.all_jobs WHERE topic = $1 GROUP BY 1", topic)
    return dict(tuple(row) for row in rows)


def untouched(dsn: str, topic: str) -> int:
    (row,) = sql(
        dsn,
        "SELECT count(*) FROM pulse.all_jobs WHERE topic = $1 AND status = 'DEAD_LETTERED' AND attempts = 1 "
        "AND max_attempts = 1 AND finished_at = submitted_at AND last_error = 'connection refused'",
        topic,
    )
    return int(row[0])
