"""A limit for each key as in Hatchet, as SQL: each claim ranks the waiting jobs by key."""

from __future__ import annotations

import time

import asyncpg

from benchmarks.draining import Drained
from benchmarks.stand import Stand

JOBS = 20_000
KEYS = 10_000
BATCH = 500

_TABLE = """
CREATE TABLE queue (
    id       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key      text    NOT NULL,
    payload  bytea   NOT NULL,
    status   text    NOT NULL DEFAULT 'waiting',
    attempts integer NOT NULL DEFAULT 0
);
CREATE INDEX queue_waiting ON queue (key, id) WHERE status = 'waiting';
CREATE INDEX queue_running ON queue (key) WHERE status = 'running';
"""
_FILL = """
INSERT INTO queue (key, payload)
SELECT 'customer-' || i % $2::int,
    convert_to('{"i": ' || i || ', "t": 1800000000.123456, "p": "xxxxxxxxxxxxxxxx"}', 'UTF8')
FROM generate_series(1, $1) AS i
"""
# One claim at a time, and it counts after the lock: otherwise the limit would not hold.
_LOCK = "SELECT pg_advisory_xact_lock(1)"
_CLAIM = """
WITH running AS (
    SELECT key, count(*) AS jobs FROM queue WHERE status = 'running' GROUP BY key
),
ranked AS (
    SELECT id, key, row_number() OVER (PARTITION BY key ORDER BY id) AS place
    FROM queue
    WHERE status = 'waiting'
)
UPDATE queue AS job
SET status = 'running', attempts = job.attempts + 1
FROM (
    SELECT ranked.id
    FROM ranked
    LEFT JOIN running ON running.key = ranked.key
    WHERE ranked.place + COALESCE(running.jobs, 0) <= 1
    ORDER BY ranked.place, ranked.id
    LIMIT $1
) AS chosen
WHERE job.id = chosen.id
RETURNING job.id, job.payload, job.attempts
"""
_COMPLETE = "UPDATE queue SET status = 'completed' WHERE id = ANY($1::bigint[]) AND status = 'running'"


async def claim_times(stand: Stand, jobs: int, keys: int, claims: int) -> list[float]:
    """Return the milliseconds of each claim while every key runs a job and other jobs wait."""
    async with stand.empty_database() as dsn:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(_TABLE)
            await connection.execute(_FILL, jobs, keys, timeout=120)
            await stand.settle(dsn)
            claim = await connection.prepare(_CLAIM)
            await claim.fetch(keys, timeout=60)
            times = []
            for _ in range(claims):
                began = time.perf_counter()
                assert not await claim.fetch(BATCH, timeout=60)
                times.append((time.perf_counter() - began) * 1000)
            return times
        finally:
            await connection.close()


async def drain(stand: Stand) -> Drained:
    """Claim and complete until nothing is left, on one connection."""
    jobs = max(stand.sized(JOBS), 2 * BATCH)
    async with stand.empty_database() as dsn:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(_TABLE)
            await connection.execute(_FILL, jobs, KEYS, timeout=60)
            await stand.settle(dsn)
            claim, complete = await connection.prepare(_CLAIM), await connection.prepare(_COMPLETE)
            done = 0
            with stand.background.watched():
                began = time.perf_counter()
                while done < jobs:
                    async with connection.transaction():
                        await connection.execute(_LOCK)
                        rows = await claim.fetch(BATCH)
                    await complete.fetch([row["id"] for row in rows])
                    done += len(rows)
                seconds = time.perf_counter() - began
        finally:
            await connection.close()
    return Drained(jobs / seconds, {})
