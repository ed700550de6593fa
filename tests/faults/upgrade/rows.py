"""Fills the schema of 0.1.0, as it was before migration 0011, with jobs in every state and with schedules."""

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
    'attempt', 1, 'worker', 'worker-' || n % 9, 'started_at', now() - interval '3 hours',
    'ended_at', now() - interval '3 hours', 'outcome', 'failed', 'error', 'boom ' || n % 7))
"""
# Of each twenty: the state, whether it is ready, and for how long its worker still holds it.
_KINDS = """
    (0, 'PENDING', true, NULL), (1, 'PENDING', true, NULL),
    (2, 'PENDING', false, NULL), (3, 'PENDING', false, NULL),
    (4, 'RUNNING', false, interval '6 hours'), (5, 'RUNNING', false, NULL),
    (6, 'RETRYING', false, NULL), (7, 'RETRYING', false, NULL),
    (8, 'COMPLETED', false, NULL), (9, 'COMPLETED', false, NULL), (10, 'COMPLETED', false, NULL),
    (11, 'COMPLETED', false, NULL), (12, 'COMPLETED', false, NULL), (13, 'COMPLETED', false, NULL),
    (14, 'DEAD_LETTERED', false, NULL), (15, 'DEAD_LETTERED', false, NULL),
    (16, 'DEAD_LETTERED', false, NULL),
    (17, 'CANCELED', false, NULL), (18, 'CANCELED', false, NULL), (19, 'CANCELED', false, NULL)
"""
# Kind 2 and 7 wait for a day, 3 and 6 are due. Of the completed ones every second is two days old.
_JOBS = f"""
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, started_at, finished_at, priority, attempts, max_attempts,
     ready, delivered, status, topic, payload, locked_by, finished_by, idempotency_key, schedule_id,
     last_error, metadata, history, error_group)
SELECT ('0190f3a2-7b1c-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
    now() - interval '3 days' + n * interval '10 ms',
    CASE WHEN kind.number IN (2, 7) THEN now() + interval '1 day' ELSE now() - interval '1 hour' END,
    CASE WHEN kind.status = 'RUNNING'
         THEN now() + COALESCE(kind.lease, (n / 60 % $3) * interval '1 second') END,
    CASE WHEN kind.number > 3 THEN now() - interval '2 hours' END,
    CASE WHEN kind.number > 7 THEN now() - (kind.number % 2) * interval '2 days' - interval '1 hour' END,
    n % 5, CASE WHEN kind.number < 4 THEN 0 WHEN kind.status = 'DEAD_LETTERED' THEN 5 ELSE 2 END,
    5, kind.ready, kind.number > 3, kind.status, 'cold-' || n % 49, '{{}}',
    CASE WHEN kind.number = 4 THEN 'live-' || n % 40 WHEN kind.number = 5 THEN 'dead-' || n % 40 END,
    CASE WHEN kind.status IN ('COMPLETED', 'DEAD_LETTERED') THEN 'worker-' || n % 9 END,
    CASE WHEN n % 3 = 0 THEN 'key-' || n END,
    CASE WHEN n % 11 = 0
         THEN ('0190f3a2-7b1c-7000-9000-' || lpad(to_hex(n % {RESTING}), 12, '0'))::uuid END,
    CASE WHEN kind.number > 3 THEN 'boom ' || n % 7 END,
    CASE WHEN n % 4 = 0 THEN jsonb_build_object('tenant', 't' || n % 100) END,
    CASE WHEN kind.number > 3 THEN {_HISTORY} END,
    CASE WHEN kind.status = 'DEAD_LETTERED' THEN 'group-' || n % 7 ELSE '' END
FROM generate_series($1::bigint, $2::bigint) AS n
JOIN (VALUES {_KINDS}) AS kind (number, status, ready, lease) ON kind.number = n / 3 % 20
"""
# Jobs that workers take: ready ones, due retries, and some whose worker is dead.
_SERVED = f"""
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, attempts, max_attempts, ready, delivered, status, topic,
     payload, locked_by, history)
SELECT ('0190f3a2-7b1c-7000-a000-' || lpad(to_hex(n), 12, '0'))::uuid, now() - interval '1 hour',
    now() - interval '1 hour',
    CASE WHEN n % 10 > 7 THEN now() + (n % $2) * interval '1 second' END,
    CASE WHEN n % 10 > 5 THEN 1 ELSE 0 END, 5, n % 10 < 6, n % 10 > 5,
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
# Apart from pulse: what was there before, to be compared with what is there afterwards.
_REMEMBER = """
CREATE SCHEMA before;
CREATE TABLE before.jobs AS SELECT * FROM pulse.jobs;
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
    await connection.execute(_SCHEDULES)
    await connection.execute("ANALYZE pulse.jobs", timeout=300)
    await connection.execute(_REMEMBER, timeout=300)
