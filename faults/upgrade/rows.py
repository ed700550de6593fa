"""Fills the schema with jobs in every state and with schedules."""

from __future__ import annotations

from dataclasses import dataclass

from tests.postgres.sessions import Connection

EVERY_SECOND = 3
"""Schedules that fire each second and catch up with all that they missed."""
RESTING = 500
"""Schedules that fire next year."""

_BATCH = 50_000
_HISTORY = """
jsonb_build_array(jsonb_build_object(
    'attempt', 1, 'run', 1, 'worker', 'worker-' || n % 9, 'started_at', now() - interval '3 hours',
    'ended_at', now() - interval '3 hours', 'outcome', 'failed', 'error', 'boom ' || n % 7))
"""
# Of each twenty: the state, whether it is queued, and for how long its worker still holds it.
_KINDS = """
    (0, 'PENDING', true, NULL), (1, 'PENDING', true, NULL),
    (2, 'PENDING', false, NULL), (3, 'PENDING', false, NULL),
    (4, 'RUNNING', true, interval '6 hours'), (5, 'RUNNING', true, NULL),
    (6, 'RETRYING', false, NULL), (7, 'RETRYING', false, NULL),
    (8, 'COMPLETED', false, NULL), (9, 'COMPLETED', false, NULL), (10, 'COMPLETED', false, NULL),
    (11, 'COMPLETED', false, NULL), (12, 'COMPLETED', false, NULL), (13, 'COMPLETED', false, NULL),
    (14, 'DEAD_LETTERED', false, NULL), (15, 'DEAD_LETTERED', false, NULL),
    (16, 'DEAD_LETTERED', false, NULL),
    (17, 'CANCELED', false, NULL), (18, 'CANCELED', false, NULL), (19, 'CANCELED', false, NULL)
"""
# Kind 2 and 7 wait for a day, 3 and 6 are due. Of the completed ones every second is two days old.
_JOBS = f"""
WITH made AS MATERIALIZED (
    SELECT ('0190f3a2-7b1c-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
        now() - interval '3 days' + n * interval '10 ms' AS submitted_at,
        CASE WHEN kind.number IN (2, 7) THEN now() + interval '1 day' ELSE now() - interval '1 hour' END
            AS next_run_at,
        CASE WHEN kind.status = 'RUNNING'
             THEN now() + COALESCE(kind.lease, (n / 60 % $3) * interval '1 second') END AS lease_until,
        CASE WHEN kind.number > 3 THEN now() - interval '2 hours' END AS started_at,
        CASE WHEN kind.number > 7 THEN now() - (kind.number % 2) * interval '2 days' - interval '1 hour' END
            AS finished_at,
        n % 5 AS priority,
        CASE WHEN kind.number < 4 THEN 0 WHEN kind.status = 'DEAD_LETTERED' THEN 5 ELSE 2 END AS attempts,
        CASE WHEN kind.number < 4 THEN 0 WHEN kind.status = 'DEAD_LETTERED' THEN 5 ELSE 2 END AS run,
        5 AS max_attempts, kind.queued, kind.number > 3 AS delivered, kind.status, 'cold-' || n % 49 AS topic,
        '{{}}'::bytea AS payload,
        CASE kind.number WHEN 4 THEN 'live-' || n % 40 WHEN 5 THEN 'dead-' || n % 40 END AS locked_by,
        CASE WHEN kind.status IN ('COMPLETED', 'DEAD_LETTERED') THEN 'worker-' || n % 9 END AS finished_by,
        CASE WHEN n % 3 = 0 THEN 'key-' || n END AS idempotency_key,
        CASE WHEN n % 11 = 0
             THEN ('0190f3a2-7b1c-7000-9000-' || lpad(to_hex(n % {RESTING}), 12, '0'))::uuid
        END AS schedule_id,
        CASE WHEN kind.number > 3 THEN 'boom ' || n % 7 END AS last_error,
        CASE WHEN n % 4 = 0 THEN jsonb_build_object('tenant', 't' || n % 100) END AS metadata,
        CASE WHEN kind.number > 3 THEN {_HISTORY} END AS history,
        CASE WHEN kind.status = 'DEAD_LETTERED' THEN 'group-' || n % 7 ELSE '' END AS error_group
    FROM generate_series($1::bigint, $2::bigint) AS n
    JOIN (VALUES {_KINDS}) AS kind (number, status, queued, lease) ON kind.number = n / 3 % 20
),
done AS (
    INSERT INTO pulse.completed_jobs
        (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, run, max_attempts,
         delivered, topic, payload, finished_by, idempotency_key, schedule_id, last_error, metadata, history)
    SELECT id, submitted_at, next_run_at, started_at, finished_at, priority, attempts, run, max_attempts,
        delivered, topic, payload, finished_by, idempotency_key, schedule_id, last_error, metadata, history
    FROM made WHERE status = 'COMPLETED'
)
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, started_at, finished_at, priority, attempts, run,
     max_attempts, queued, delivered, status, topic, payload, locked_by, finished_by, idempotency_key,
     schedule_id, last_error, metadata, history, error_group, ended_as)
SELECT made.*, CASE WHEN status IN ('DEAD_LETTERED', 'CANCELED') THEN status END
FROM made WHERE status <> 'COMPLETED'
"""
# Jobs that workers take: ready ones, due retries, and some whose worker is dead.
_SERVED = f"""
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, attempts, run, max_attempts, queued, delivered, status,
     topic, payload, locked_by, history)
SELECT ('0190f3a2-7b1c-7000-a000-' || lpad(to_hex(n), 12, '0'))::uuid, now() - interval '1 hour',
    now() - interval '1 hour',
    CASE WHEN n % 10 > 7 THEN now() + (n % $2) * interval '1 second' END,
    (n % 10 > 5)::int, (n % 10 > 5)::int, 5, n % 10 NOT IN (6, 7), n % 10 > 5,
    CASE WHEN n % 10 > 7 THEN 'RUNNING' WHEN n % 10 > 5 THEN 'RETRYING' ELSE 'PENDING' END, 'served', '{{}}',
    CASE WHEN n % 10 > 7 THEN 'dead-' || n % 4 END,
    CASE WHEN n % 10 IN (6, 7) THEN {_HISTORY} END
FROM generate_series(1, $1::bigint) AS n
"""
_SCHEDULES = f"""
INSERT INTO pulse.schedules (id, next_run_at, interval_ms, max_attempts, kind, catch_up, name, topic, payload)
SELECT ('0190f3a2-7b1c-7000-9000-' || lpad(to_hex(n), 12, '0'))::uuid,
    date_trunc('second', now())
        + CASE WHEN n < {RESTING} THEN interval '1 year' ELSE interval '2 seconds' END,
    CASE WHEN n < {RESTING} THEN 86400000 ELSE 1000 END, 5, 'interval', 'all', 'schedule-' || n,
    CASE WHEN n < {RESTING} THEN 'resting' ELSE 'ticks' END, '{{}}'
FROM generate_series(0, {RESTING + EVERY_SECOND - 1}) AS n
"""
_LEASE_CHECKS = """
INSERT INTO pulse.lease_checks (check_at, settled, ids)
SELECT min(running.lease_until), true, array_agg(running.id)
FROM (
    SELECT id, lease_until, row_number() OVER (ORDER BY lease_until) AS place
    FROM pulse.jobs WHERE status = 'RUNNING'
) AS running
GROUP BY running.place / 1000
"""
# Apart from pulse: what was there before, to be compared with what is there afterwards.
_REMEMBER = """
CREATE SCHEMA before;
CREATE TABLE before.jobs AS SELECT * FROM pulse.all_jobs;
CREATE TABLE before.schedules AS SELECT * FROM pulse.schedules;
CREATE UNIQUE INDEX ON before.jobs (id);
CREATE INDEX ON before.jobs (id) WHERE locked_by LIKE 'dead-%';
ANALYZE before.jobs;
"""


@dataclass(frozen=True)
class Filling:
    """How many rows there are, and how soon the leases of dead workers end."""

    rows: int
    served: int
    lease_seconds: int


async def fill(connection: Connection, filling: Filling) -> None:
    """Insert the rows in this schema, and remember them in the schema `before`."""
    for first in range(1, filling.rows + 1, _BATCH):
        last = min(first + _BATCH - 1, filling.rows)
        await connection.execute(_JOBS, first, last, filling.lease_seconds, timeout=300)
    await connection.execute(_SERVED, filling.served, filling.lease_seconds)
    await connection.execute(_LEASE_CHECKS, timeout=300)
    await connection.execute(_SCHEDULES)
    await connection.execute("ANALYZE pulse.jobs", timeout=300)
    await connection.execute(_REMEMBER, timeout=300)
