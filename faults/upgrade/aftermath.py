"""What has to hold after an upgrade: of the executions, through a new server, and of retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pulse
from faults.upgrade.comparison import counts
from tests.eventually import eventually
from tests.postgres.sessions import Connection
from tests.system.journal import Execution
from tests.system.stage import Stage

_SAMPLE = 20
_PATIENCE_SECONDS = 300.0
_SERVED = """
SELECT old.id::text, old.attempts AS before, job.attempts, job.status
FROM before.jobs AS old JOIN pulse.all_jobs AS job USING (id) WHERE old.topic = 'served'
"""
_KEYED = """
SELECT id::text, topic, idempotency_key AS key, status FROM (
    SELECT *, row_number() OVER (PARTITION BY status ORDER BY id DESC) AS place
    FROM before.jobs WHERE idempotency_key IS NOT NULL
) AS keyed WHERE place <= $1
"""
_RIPE = "old.status = 'COMPLETED' AND old.finished_at < now() - interval '1 day' AND old.topic LIKE 'cold-%'"
_RIPE_LEFT = f"SELECT count(*) FROM before.jobs AS old JOIN pulse.all_jobs AS job USING (id) WHERE {_RIPE}"

_ARE_LEFT = _RIPE_LEFT.replace("SELECT count(*)", "SELECT true") + " LIMIT 1"


async def judge_executions(
    connection: Connection, starts: Sequence[Execution], submitted: Iterable[str], doomed: set[str]
) -> list[str]:
    """Each job ran once, those of the killed worker once more, old ones at their next attempt."""
    attempts = Counter((start.job_id, start.attempt) for start in starts)
    runs = Counter(start.job_id for start in starts)
    rows = await connection.fetch(
        "SELECT id::text, status FROM pulse.all_jobs WHERE id = ANY($1::uuid[])", [*submitted]
    )
    status = {row["id"]: row["status"] for row in rows}
    served = await connection.fetch(_SERVED)
    expected = {
        job_id: 2 if job_id in doomed else 1 for job_id in (*submitted, *(row["id"] for row in served))
    }
    found = {
        "attempts were started twice": sum(count > 1 for count in attempts.values()),
        "jobs ran more often than their leases allow": sum(
            runs[job] > times for job, times in expected.items()
        ),
        "jobs ran less often than they have to": sum(runs[job] < times for job, times in expected.items()),
        "submitted jobs are not completed": sum(status.get(job) != "COMPLETED" for job in submitted),
        "jobs from before are not completed at their next attempt": sum(
            row["status"] != "COMPLETED" or row["attempts"] != row["before"] + 1 for row in served
        ),
    }
    return [f"{count:,} {what}" for what, count in found.items() if count]


async def look_through(address: str, connection: Connection) -> list[str]:
    """Read, submit under old keys, retry and cancel through a new server."""
    found = []
    async with pulse.Pulse(address) as p:
        for row in await connection.fetch(_KEYED, _SAMPLE):
            handle = await p.enqueue(row["topic"], {}, key=row["key"])
            if handle.id != row["id"]:
                found.append(f"key {row['key']} of a job that was {row['status']} made job {handle.id}")
        in_table = await connection.fetch(
            "SELECT status, count(*) FROM pulse.all_jobs "
            "WHERE topic = 'cold-1' AND status <> 'COMPLETED' GROUP BY status"
        )
        for status, count in in_table:
            counted = (await p.count_jobs(topic="cold-1", status=status)).count
            if counted != count:
                found.append(f"{counted:,} {status} jobs of cold-1 are counted, {count:,} are there")
        for status in ("DEAD_LETTERED", "CANCELED"):
            (job, *_) = (await p.list_jobs(topic="cold-1", status=status)).jobs
            if (await p.retry(job.id)).status != "PENDING" or (await p.cancel(job.id)).status != "CANCELED":
                found.append(f"job {job.id}, {status} from before, cannot be retried and canceled")
    return found


async def retire(stage: Stage, settings: Mapping[str, str], connection: Connection) -> list[str]:
    """Have a server delete completed jobs after a day: those from before go, and no others."""
    before = await counts(connection)
    ripe = await connection.fetchval(_RIPE_LEFT)
    await stage.pulsed(None, **{**settings, "PULSE_RETENTION_COMPLETED": "1d"})

    async def are_gone() -> bool:
        return not await connection.fetchval(_ARE_LEFT, timeout=60)

    await eventually(
        are_gone, "completed jobs from before are deleted when their time has come", _PATIENCE_SECONDS
    )
    after = await counts(connection)
    if not ripe or after != before | {"COMPLETED": before["COMPLETED"] - ripe}:
        return [f"retention deleted others than {ripe:,} completed jobs: {before} became {after}"]
    return []
