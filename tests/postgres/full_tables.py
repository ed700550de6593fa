"""Every table that grows, filled, and the states of the statistics that the planner may have of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from pulse_server.database.statements import statements
from tests.postgres import large_tables
from tests.postgres.sessions import Connection

ROWS = 2500  # of each table, at least. A statement that walks one stands out
LANES = 50
WORKFLOW = "0190f3a2-7b1c-7000-9000-000000000001"  # of ROWS jobs: the first, its children, and their child
FEW = 10
# Nothing in them grows with the jobs, the schedules or the topics.
SMALL = {"dispatch_control", "migrations", "servers"}
_OTHERS = f"""
UPDATE pulse.jobs SET idempotency_key = 'key-' || id,
    unique_key = 'unique-' || right(id::text, 12), unique_scope = 'waiting',
    schedule_id = ('0190f3a2-7b1c-7000-9009-' || right(id::text, 12))::uuid, lane = 'lane',
    start_by = CASE WHEN queued THEN NULL ELSE now() - interval '1 s' END, last_error = 'boom',
    undo = jsonb_build_object('action', '{WORKFLOW}', 'status', status, 'was', '{{}}'::jsonb)
WHERE id::text LIKE '%-8001-%';
UPDATE pulse.jobs SET steps = 2, step_bytes = 30, signals = 1, signal_bytes = 4
WHERE id::text LIKE '%-8003-%';
INSERT INTO pulse.job_steps (job_id, name, position, attempt, started_at, stored_at, kind, value)
SELECT job.id, 'step-' || n, n, 1, now(), now(), 'step', 'x'
FROM pulse.jobs AS job, generate_series(1, 2) AS n WHERE job.id::text LIKE '%-8003-%';
INSERT INTO pulse.job_signals (id, job_id, name, value)
SELECT gen_random_uuid(), job.id, 'news', 'x' FROM pulse.jobs AS job WHERE job.id::text LIKE '%-8003-%';
-- Orphans: their jobs are gone.
INSERT INTO pulse.job_steps (job_id, name, position, attempt, started_at, stored_at, kind, value)
SELECT gen_random_uuid(), 'step', 1, 1, now(), now(), 'step', 'x' FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.job_signals (id, job_id, name, value)
SELECT gen_random_uuid(), gen_random_uuid(), 'news', 'x' FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts,
    max_attempts, delivered, topic, payload, finished_by, idempotency_key, schedule_id, unique_key, lane,
    last_error, timeline)
SELECT ('0190f3a2-7b1c-7000-8009-' || lpad(to_hex(n), 12, '0'))::uuid, now() - n * interval '1 ms',
    now(), now(), now(), 0, 1, 5, true, 'topic-' || n % 5, '{{}}', 'worker-1', 'done-' || n,
    ('0190f3a2-7b1c-7000-9009-' || lpad(to_hex(n), 12, '0'))::uuid,
    'unique-' || n, 'lane', 'boom', '[]'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.unique_periods (topic, key, until, job_id)
SELECT 'topic-' || n % 5, 'period-' || n, now() + (n % 2 * 2 - 1) * interval '1 h', gen_random_uuid()
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.schedules (id, name, kind, interval_ms, topic, payload, priority, max_attempts, next_run_at,
    overlap, queued_for, application)
SELECT ('0190f3a2-7b1c-7000-9009-' || lpad(to_hex(n), 12, '0'))::uuid, 'schedule-' || n, 'interval',
    3600000, 'topic-0', '{{}}', 0, 5, '2026-01-01', CASE n % 2 WHEN 0 THEN 'allow' ELSE 'queue' END,
    CASE n % 2 WHEN 1 THEN '2026-01-01'::timestamptz END,
    'shop-' || n / 20
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.arrivals (oldest, jobs, topic, ids) SELECT now(), 1, 'topic-0', ARRAY[gen_random_uuid()]
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.spared_workers SELECT 'spared-' || n, now() + (n % 2 * 2 - 1) * interval '1 h'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.worker_states (worker_id, run_id, state) SELECT 'worker-' || n, 'run', 'quiet'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.audit (id, at, changed, user_name, role, address, method, reason, outcome, topics, ids,
    asked)
SELECT gen_random_uuid(), now() - n * interval '1 s', 1, 'user-' || n % 100, 'operator', '',
    'Method' || n % 100, '', 'OK',
    ARRAY['topic-' || n], ARRAY[gen_random_uuid()::text], '{{}}'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.topic_rules (topic, completed_kept, kept_changed_at)
SELECT 'kept-' || n, interval '2 days', now()
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.topic_rules (topic, max_attempts) SELECT 'run-' || n, 3
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.topic_settings (topic, owner, entries)
SELECT 'run-' || n, 'worker-1', '{{"max_attempts": 3}}'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.barred_topics (topic) SELECT 'paused-' || n FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.pools (name, "limit") SELECT 'limited-' || n, 5 FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.limit_policies (topic, pool) SELECT 'limited-' || n, 'limited-' || n
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.topic_settings (topic, owner, entries)
SELECT 'limited-' || n, owner, '{{"running": 5}}'
FROM generate_series(1, $rows) AS n
CROSS JOIN unnest(ARRAY['', 'worker-1']) AS owner;
INSERT INTO pulse.lanes (topic, lane, held, used_at)
SELECT 'limited-' || n, 'lane', 0, now() - interval '1 year'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.lane_line (topic, lanes, places) SELECT 'limited-' || n, ARRAY['lane'], 1
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
SELECT 'limited-' || n, 'limited-' || n, ARRAY['lane'], 0
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.topic_minutes (minute, topic, ready) SELECT now() - n * interval '1 hour', 'topic-' || n, 1
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.workflows (id, name, digest, jobs, edges, unfinished, succeeded, finished_at)
SELECT ('0190f3a2-7b1c-7000-9001-' || lpad(to_hex(n), 12, '0'))::uuid, 'ended', '', 1, 0, 0, 1,
    now() - interval '1 h'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.workflow_jobs (job_id, workflow_id, number, unended, condition, name, topic)
SELECT gen_random_uuid(), ('0190f3a2-7b1c-7000-9001-' || lpad(to_hex(n), 12, '0'))::uuid, 1, 0,
    'succeeded', 'only', 'wf'
FROM generate_series(1, $rows) AS n;
INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
SELECT ('0190f3a2-7b1c-7000-9001-' || lpad(to_hex(n), 12, '0'))::uuid, ARRAY[gen_random_uuid()], 'COMPLETED'
FROM generate_series(1, $rows) AS n;
"""


async def fill(connection: Connection, rows: int = ROWS) -> None:
    await large_tables.add_backlog(connection, rows)
    await large_tables.add_due(connection, rows)
    await large_tables.add_running(connection, rows)
    await large_tables.add_dead_letters(connection, rows)
    await connection.execute(_OTHERS.replace("$rows", str(rows)))
    (mark,) = await connection.fetchrow(statements("topics/limits.sql")["mark_topic"], "lanes")
    limit_topic = statements("topics/limits.sql")["limit_topic"]
    await connection.fetch(
        limit_topic, "lanes", "lanes", True, 20, None, None, False, None, False, 1000, None, None, mark
    )
    await connection.execute(
        f"SELECT pulse.enqueue_many('lanes', array_fill('x'::bytea, ARRAY[{max(1, rows // LANES)}]), "
        f"lane => 'lane-' || n) FROM generate_series(1, {LANES}) AS n"
    )
    # The first claims take the notices of these jobs, and put their lanes into the line.
    for _ in range(2):
        await connection.execute(
            "SELECT FROM pulse.claim_limited_v1('{lanes}', 1, '{1}', '{A}', '{t}', '1 h', 10000, NULL, NULL)"
        )
    await connection.fetch(
        "SELECT * FROM pulse.store_workflow_v1($1, 'large', 'd', NULL, $2)", WORKFLOW, definition(rows)
    )


def definition(jobs: int) -> str:
    def job(name: str, *after: str) -> dict[str, object]:
        return {"name": name, "topic": "wf", "payload": "e30=", "max_attempts": 5, "after": list(after)}

    children = [job(f"part-{number}", "1") for number in range(2, jobs)]
    return json.dumps([job("first"), *children, job("last", *map(str, range(2, jobs)))])


async def tables(connection: Connection) -> list[str]:
    """The names of all tables."""
    rows = await connection.fetch(
        "SELECT relname FROM pg_class "
        "WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    return [row["relname"] for row in rows]


async def _of_each(connection: Connection, command: str) -> None:
    for table in await tables(connection):
        if table not in SMALL:
            await connection.execute(f"{command} pulse.{table}")


async def of_a_nearly_empty_time(connection: Connection) -> None:
    await fill(connection, FEW)
    await _of_each(connection, "ANALYZE")
    await _of_each(connection, "DELETE FROM")
    await fill(connection)
    await _vacuum(connection)
    await _believe(connection, f"reltuples = {FEW}, relpages = 1")


async def of_no_time(connection: Connection) -> None:
    """As before the first ANALYZE."""
    await _vacuum(connection)
    await connection.execute(
        "DELETE FROM pg_statistic "
        "WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'pulse'::regnamespace)"
    )
    await _believe(connection, "reltuples = -1, relpages = 0")


async def of_an_empty_time(connection: Connection) -> None:
    """As an ANALYZE, or a VACUUM that could not truncate, leaves them at a moment without rows: the planner
    expects one row of each table, however large, and one page of each of its indexes."""
    await of_no_time(connection)
    await _believe(connection, "reltuples = 0, relpages = GREATEST(1, pg_relation_size(oid) / 8192)")


async def of_now(connection: Connection) -> None:
    await _vacuum(connection)
    await _of_each(connection, "ANALYZE")


async def of_a_full_time(connection: Connection) -> None:
    """As a VACUUM leaves them when the tables are emptied after an ANALYZE, and filled again."""
    await of_now(connection)
    await _believe(connection, "reltuples = 0, relpages = 0")


async def _vacuum(connection: Connection) -> None:
    """Remove what statements before left behind: they would be counted among the entries that are read."""
    await _of_each(connection, "VACUUM (INDEX_CLEANUP ON)")


async def _believe(connection: Connection, values: str) -> None:
    await connection.execute(
        f"UPDATE pg_class SET {values} WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i')"
    )


# In this order: each is made from the one before.
STATISTICS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "of a nearly empty time": of_a_nearly_empty_time,
    "of no time": of_no_time,
    "of an empty time": of_an_empty_time,
    "of now": of_now,
    "of a full time": of_a_full_time,
}
