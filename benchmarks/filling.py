"""Jobs put into the database by SQL: a million through the API would take longer than the run."""

from __future__ import annotations

import asyncpg

TOPIC = "bench"

# Ids as UUIDv7 has them, twenty to a millisecond; times a microsecond apart, as a stream of submits leaves
# them. The payload is what `load.payload` makes.
_FILL = """
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status,
    lane, tier, rank_at)
SELECT
    (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint + i / 20), 12, '0')
        || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
    ($2::text[])[1 + i % cardinality($2::text[])],
    convert_to('{"i": ' || i || ', "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}', 'UTF8'),
    $3::int, 5, now() + i * interval '1 microsecond',
    now() + CASE WHEN $4 THEN interval '1 day' ELSE interval '0' END, NOT $4, 'PENDING',
    'customer-' || i % NULLIF($5::int, 0), CASE WHEN $5 > 0 THEN $3::int END,
    CASE WHEN $5 > 0 THEN now() + i * interval '1 microsecond' END
FROM generate_series(1, $1) AS i
"""
# Like bulk submits: the distinct lanes of each thousand jobs, up to 64 per row.
_NOTICES = """
INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
SELECT $2::text, $2::text, array_agg(lane.name), 0
FROM (
    SELECT entered.batch, entered.name, row_number() OVER (PARTITION BY entered.batch) AS number
    FROM (
        SELECT DISTINCT i / 1000 AS batch, 'customer-' || i % $3::int AS name FROM generate_series(1, $1) AS i
    ) AS entered
) AS lane
GROUP BY lane.batch, (lane.number - 1) / 64
"""


def topics(count: int) -> list[str]:
    """Return the names of that many topics; the only one is TOPIC."""
    return [TOPIC] if count == 1 else [f"{TOPIC}-{number}" for number in range(count)]


async def fill(
    dsn: str,
    jobs: int,
    *,
    into: list[str] | None = None,
    priority: int = 0,
    delayed: bool = False,
    lanes: int = 0,
) -> None:
    """Put jobs into the table, spread evenly over the topics; delayed ones are due in a day.

    With `lanes`, the jobs of TOPIC go into that many lanes in turn. TOPIC has limits by then.
    """
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_FILL, jobs, into or [TOPIC], priority, delayed, lanes, timeout=600)
        if lanes:
            await connection.execute(_NOTICES, jobs, TOPIC, lanes, timeout=600)
    finally:
        await connection.close()
