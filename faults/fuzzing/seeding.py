"""Inserts the jobs and schedules that the fuzzer names, and prunes what it piles up."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import asyncpg

from faults.fuzzing.acquaintances import (
    FREE_JOBS,
    HELD_JOBS,
    TOPICS,
    WORKERS,
    WORN_ATTEMPTS,
    Acquaintances,
)
from tests.postgres.sessions import Connection

_MOST_JOBS = 20_000

# Those that are held first, then one job of each status after the other.
_JOBS = f"""
INSERT INTO pulse.jobs (
    id, topic, payload, submitted_at, next_run_at, max_attempts, attempts, run, queued, delivered,
    status, locked_by, lease_until, started_at, finished_at, last_error, idempotency_key, metadata,
    schedule_id, ended_as)
SELECT
    wanted.id, ($2::text[])[1 + place % 4], '{{}}', now() - interval '1 hour', now() - interval '1 hour',
    CASE WHEN place = {HELD_JOBS} THEN {WORN_ATTEMPTS + 1000} ELSE 5 END,
    claims, claims,
    state = 'RUNNING' OR state IN ('PENDING', 'RETRYING') AND place % 2 = 0, state <> 'PENDING', state,
    CASE WHEN state = 'RUNNING' THEN ($3::text[])[1 + (place - 1) % 2] END,
    CASE WHEN state = 'RUNNING' THEN now() + interval '1 hour' END,
    CASE WHEN state <> 'PENDING' THEN now() END,
    CASE WHEN state IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED') THEN now() END,
    'boom', CASE WHEN place % 7 = 0 THEN wanted.id::text END, '{{"k": "v"}}',
    CASE WHEN place % 5 = 0 THEN $4::uuid END,
    CASE WHEN state IN ('DEAD_LETTERED', 'CANCELED') THEN state END
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, place)
CROSS JOIN LATERAL (
    SELECT CASE WHEN place <= {HELD_JOBS} THEN 'RUNNING'
        ELSE (ARRAY['PENDING', 'RETRYING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED'])[1 + place % 5]
    END AS state
) AS said
CROSS JOIN LATERAL (
    SELECT CASE WHEN place = {HELD_JOBS} THEN {WORN_ATTEMPTS} WHEN state = 'PENDING' THEN 0 ELSE 1 END
        AS claims
) AS counted
ON CONFLICT DO NOTHING
"""
_SCHEDULES = """
INSERT INTO pulse.schedules (
    id, name, next_run_at, kind, run_at, interval_ms, cron_expr, max_attempts, paused, topic, payload)
SELECT
    wanted.id, ($3::text[])[place], now() + interval '1 minute', kind,
    CASE WHEN kind = 'once' THEN now() + interval '1 minute' END,
    CASE WHEN kind = 'interval' THEN 60000 END,
    CASE WHEN kind = 'cron' THEN '*/5 * * * *' END,
    5, place % 4 = 0, ($2::text[])[1 + place % 4], '{}'
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, place)
CROSS JOIN LATERAL (SELECT (ARRAY['once', 'interval', 'cron'])[1 + place % 3] AS kind) AS said
ON CONFLICT DO NOTHING
"""


async def refresh(connection: Connection, known: Acquaintances) -> None:
    """Restore the known jobs and schedules to their initial state."""
    jobs, schedules = _ids(known.own_jobs), _ids(known.own_schedules)
    with suppress(asyncpg.DeadlockDetectedError):  # the same ids are being submitted: repeated next time
        await connection.execute("DELETE FROM pulse.completed_jobs WHERE id = ANY($1)", jobs)
        await _delete(connection, "pulse.jobs", "id = ANY($1)", jobs)
        await connection.execute(_JOBS, jobs[:-FREE_JOBS], TOPICS, WORKERS, schedules[0])
        await _delete(connection, "pulse.schedules", "id = ANY($1) OR name = ANY($2)", schedules, known.names)
        await connection.execute(_SCHEDULES, schedules, TOPICS, known.names)
        await _delete(connection, "pulse.barred_topics", "true")
        await _delete(connection, "pulse.worker_states", "true")
        await connection.execute("UPDATE pulse.dispatch_control SET paused = false, paused_at = NULL")


async def take_out(connection: Connection) -> None:
    """Keep the tables at the size of a small queue."""
    if await connection.fetchval("SELECT count(*) FROM pulse.jobs") > _MOST_JOBS:
        await _delete(connection, "pulse.jobs", "status <> 'RUNNING'")
    if await connection.fetchval("SELECT count(*) FROM pulse.completed_jobs") > _MOST_JOBS:
        await connection.execute("DELETE FROM pulse.completed_jobs")
    await _delete(connection, "pulse.schedules", "created_at < now() - interval '1 minute'")
    await connection.execute("VACUUM ANALYZE pulse.jobs, pulse.completed_jobs, pulse.schedules")


async def _delete(connection: Connection, table: str, condition: str, *values: object) -> None:
    """Skip locked rows: this must not cause a deadlock with the server."""
    await connection.execute(
        f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {condition} "
        "FOR UPDATE SKIP LOCKED))",
        *values,
    )


def _ids(texts: list[str]) -> list[UUID]:
    return [UUID(text) for text in texts]
