"""Completed jobs of past days, put into the database by SQL, as after weeks of use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import asyncpg

from benchmarks.filling import TOPIC

# The jobs of one day, as submits over that day would have left them, with ids as UUIDv7 has them.
_DAY = """
SELECT
    (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3)
        || '8' || substr(md5(i::text), 4, 15))::uuid AS id,
    moment AS submitted_at,
    moment AS next_run_at,
    moment AS started_at,
    moment + interval '5 milliseconds' AS finished_at,
    0 AS priority,
    1 AS attempts,
    5 AS max_attempts,
    true AS delivered,
    ('{{{topics}}}'::text[])[1 + i % {count}] AS topic,
    convert_to('{{"i": ' || i || ', "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}}', 'UTF8') AS payload,
    'bench-1-abcdef' AS finished_by
FROM (
    SELECT i, timestamptz '{begin}' + i * (interval '23 hours' / {jobs}) AS moment
    FROM generate_series(1, {jobs}) AS i
) AS numbered
"""
_COLUMNS = (
    "id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, max_attempts, delivered, "
    "topic, payload, finished_by"
)
# Attached when it is full: its indexes are built at once, in half the time.
_FILL_PARTITION = """
BEGIN;
CREATE TABLE pulse.{name} (LIKE pulse.completed_jobs INCLUDING DEFAULTS);
INSERT INTO pulse.{name} ({columns}) {day};
ALTER TABLE pulse.completed_jobs_by_day
    ATTACH PARTITION pulse.{name} FOR VALUES FROM ('{begin}') TO ('{end}');
COMMIT
"""


# A day that the server has made already: a little after midnight, that is yesterday.
_FILL_KNOWN_PARTITION = "INSERT INTO pulse.{name} ({columns}) {day}"


def partition_of(day: date) -> str:
    """Return the name of the partition of a day."""
    return f"completed_jobs_{day:%Y%m%d}"


async def fill_finished(
    dsn: str, jobs: int, *, days_ago: Sequence[int], topics: Sequence[str] = (TOPIC,)
) -> None:
    """Put completed jobs into partitions of past days, spread evenly over the days and topics."""
    today = datetime.now(UTC).date()
    days = iter([today - timedelta(days=number) for number in days_ago])

    async def fill_days() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            for day in days:
                is_known = await connection.fetchval(
                    "SELECT to_regclass('pulse.' || $1) IS NOT NULL", partition_of(day)
                )
                filling = _filling(day, jobs // len(days_ago), topics, is_known=is_known)
                await connection.execute(filling, timeout=1200)
        finally:
            await connection.close()

    await asyncio.gather(fill_days(), fill_days())


def _filling(day: date, jobs: int, topics: Sequence[str], *, is_known: bool) -> str:
    begin, end = (f"{moment} 00:00+00" for moment in (day, day + timedelta(days=1)))
    rows = _DAY.format(begin=begin, jobs=jobs, topics=",".join(topics), count=len(topics))
    statement = _FILL_KNOWN_PARTITION if is_known else _FILL_PARTITION
    return statement.format(name=partition_of(day), columns=_COLUMNS, day=rows, begin=begin, end=end)
