"""A database of 0.1.0 is upgraded while its servers are connected: jobs of every state are as they were.

`python3 dev.py chaos --upgrade` does the same with a million jobs, with servers and workers of that release.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from pulse_server.postgres.migrations.runner import apply_migrations
from tests.eventually import eventually
from tests.faults.upgrade import aftermath, comparison
from tests.faults.upgrade.rows import Filling, fill
from tests.postgres.release_before_0011 import make_old_schema, old_claim, old_session, old_submit
from tests.postgres.sessions import Connection
from tests.system.stage import QUICK, Stage

SETTINGS = QUICK | {
    f"PULSE_RETENTION_{status}": "forever" for status in ("COMPLETED", "CANCELED", "DEAD_LETTERED")
}
FILLING = Filling(rows=3_000, served=60, lease_seconds=2)
SERVED = "SELECT EXISTS (SELECT FROM pulse.jobs WHERE finished_at IS NULL AND topic = 'served')"
FIRST = "(SELECT id FROM pulse.jobs WHERE topic LIKE 'cold-%' AND status = '{}' ORDER BY id LIMIT 1)"
SABOTAGE = {
    "jobs are lost": f"DELETE FROM pulse.jobs WHERE id = {FIRST.format('COMPLETED')}",
    "jobs are there twice": f"""
        INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, finished_at, priority, attempts,
            max_attempts, delivered, topic, payload)
        SELECT id, submitted_at, next_run_at, now(), 0, 1, 5, true, topic, payload FROM pulse.jobs
        WHERE id = {FIRST.format("PENDING")}
    """,
    "keys belong to two jobs": """
        INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, finished_at, priority, attempts,
            max_attempts, delivered, topic, payload, idempotency_key)
        SELECT gen_random_uuid(), submitted_at, next_run_at, now(), 0, 1, 5, true, topic, payload,
            idempotency_key FROM pulse.jobs WHERE idempotency_key IS NOT NULL LIMIT 1
    """,
    "jobs have other content": f"UPDATE pulse.jobs SET payload = 'x' WHERE id = {FIRST.format('RETRYING')}",
    "jobs that no worker takes have changed": f"""
        UPDATE pulse.jobs SET attempts = 1, history = NULL WHERE id = {FIRST.format("CANCELED")}
    """,
    "schedules are lost or changed": "DELETE FROM pulse.schedules WHERE name = 'schedule-7'",
    "schedules have lost or doubled occurrences": """
        UPDATE pulse.schedules SET next_run_at = next_run_at + interval '1 second' WHERE name = 'schedule-500'
    """,
    "running jobs are in no lease check": "DELETE FROM pulse.lease_checks",
}


@pytest.fixture
async def old(empty_database_dsn: str) -> AsyncIterator[Connection]:
    """A session of a server from before migration 0011, on a database of its time."""
    await make_old_schema(empty_database_dsn)
    connection = await old_session(empty_database_dsn)
    await fill(connection, FILLING)
    yield connection
    connection.terminate()


async def test_jobs_of_every_state_outlive_the_upgrade_and_those_that_wait_run_once(
    empty_database_dsn: str, old: Connection, tmp_path: Path
) -> None:
    await old_submit(old, 5)
    held = await old_claim(old, 5)
    stage = Stage(empty_database_dsn, tmp_path)
    try:
        server = await stage.pulsed(None, "--migrate", **SETTINGS)
        for action in (old_submit, old_claim):
            with pytest.raises(asyncpg.UndefinedColumnError):
                await action(old, 5, topic="served")
        await stage.worker(server.address, "served=work", "ticks=work", "email=work")

        async def are_done() -> bool:
            return not (await old.fetchval(SERVED) or await comparison.are_held_by_the_dead(old))

        await eventually(are_done, "jobs that are served are finished, and dead workers hold none")
        assert await comparison.faults(old) == []
        assert await aftermath.judge_executions(old, stage.executions(), [], set()) == []
        assert not [start for start in stage.executions() if start.job_id in held]
        assert await aftermath.look_through(server.address, old) == []
        assert await aftermath.retire(stage, SETTINGS, old) == []
    finally:
        stage.close()


@pytest.mark.parametrize("fault", SABOTAGE)
async def test_comparison_finds_what_an_upgrade_has_broken(
    empty_database_dsn: str, old: Connection, fault: str
) -> None:
    await apply_migrations(empty_database_dsn)
    assert await comparison.faults(old) == []

    await old.execute(SABOTAGE[fault])

    assert fault in [found.split(" ", 1)[1] for found in await comparison.faults(old)]
