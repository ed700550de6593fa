"""Compares the rows after an upgrade with those before it."""

from __future__ import annotations

from tests.postgres.sessions import Connection

_SAME = """
(job.submitted_at, job.priority, job.max_attempts, job.topic, job.payload, job.idempotency_key,
 job.schedule_id, job.metadata)
"""
_UNTOUCHED = """
(job.status, job.attempts, job.run, job.next_run_at, job.lease_until, job.started_at, job.finished_at,
 job.locked_by, job.finished_by, job.delivered, job.last_error, job.history, job.error_group)
"""
# A job of a dead worker: as it was, or reaped once, and not before its lease ended.
_REAPED = """
(job.status, job.locked_by, job.attempts, job.run, jsonb_array_length(job.history))
    IS NOT DISTINCT FROM
        ('RETRYING', NULL, old.attempts, old.run, COALESCE(jsonb_array_length(old.history), 0) + 1)
AND job.history -> -1 ->> 'outcome' = 'lease_expired'
AND (job.history -> -1 ->> 'ended_at')::timestamptz >= old.lease_until
"""
_BOTH = "SELECT count(*) FROM before.jobs AS old JOIN pulse.all_jobs AS job USING (id) WHERE"
# Each counts what must not be there.
_FAULTS = {
    "jobs are lost": """
        SELECT count(*) FROM before.jobs AS old LEFT JOIN pulse.all_jobs AS job USING (id)
        WHERE job.id IS NULL
    """,
    "jobs are there twice": "SELECT count(*) - count(DISTINCT id) FROM pulse.all_jobs",
    "keys belong to two jobs": """
        SELECT count(*) - count(DISTINCT (topic, idempotency_key)) FROM pulse.all_jobs
        WHERE idempotency_key IS NOT NULL
    """,
    "jobs have other content": f"{_BOTH} {_SAME} IS DISTINCT FROM {_SAME.replace('job.', 'old.')}",
    "jobs that no worker takes have changed": f"""
        {_BOTH} old.topic LIKE 'cold-%'
        AND {_UNTOUCHED} IS DISTINCT FROM {_UNTOUCHED.replace("job.", "old.")}
        AND NOT (COALESCE(old.locked_by LIKE 'dead-%', false) AND {_REAPED})
    """,
    "schedules are lost or changed": """
        SELECT count(*) FROM before.schedules AS old LEFT JOIN pulse.schedules AS new USING (id)
        WHERE (old.name, old.kind, old.interval_ms, old.topic, old.catch_up)
            IS DISTINCT FROM (new.name, new.kind, new.interval_ms, new.topic, new.catch_up)
           OR (old.topic = 'resting' AND new.next_run_at <> old.next_run_at)
    """,
    "schedules have lost or doubled occurrences": """
        SELECT count(*) FROM pulse.schedules AS new JOIN before.schedules AS old USING (id)
        WHERE old.topic = 'ticks'
          AND (SELECT count(*) FROM pulse.all_jobs AS job WHERE job.schedule_id = new.id)
            <> extract(epoch FROM new.next_run_at - old.next_run_at)
    """,
    "running jobs are in no lease check": """
        SELECT count(*) FROM pulse.jobs AS job
        WHERE job.status = 'RUNNING' AND NOT EXISTS (SELECT FROM checked WHERE checked.id = job.id)
    """,
}
_CHECKED = "WITH checked AS MATERIALIZED (SELECT unnest(ids) AS id FROM pulse.lease_checks) "
_HELD = """
SELECT EXISTS (
    SELECT FROM before.jobs AS old JOIN pulse.jobs AS job USING (id)
    WHERE old.locked_by LIKE 'dead-%' AND job.locked_by = old.locked_by
)
"""


async def faults(connection: Connection) -> list[str]:
    """What is wrong with the rows, one sentence each. One snapshot: servers may be at work."""
    found = []
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        for what, counted in _FAULTS.items():
            count = await connection.fetchval(_CHECKED + counted, timeout=300)
            if count:
                found.append(f"{count:,} {what}")
    return found


async def are_held_by_the_dead(connection: Connection) -> bool:
    """Whether jobs still belong to workers that were dead before."""
    return bool(await connection.fetchval(_HELD, timeout=60))


async def counts(connection: Connection, table: str = "pulse.all_jobs") -> dict[str, int]:
    """How many of the remembered jobs have each status now, or had it before."""
    rows = await connection.fetch(
        f"SELECT job.status, count(*) FROM {table} AS job JOIN before.jobs AS old USING (id) "
        "GROUP BY 1 ORDER BY 1",
        timeout=60,
    )
    return {row["status"]: row["count"] for row in rows}
