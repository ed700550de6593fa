"""A database is upgraded to a next release while its servers work: jobs of every state are as they were.

`python3 dev.py chaos --upgrade` does the same with a million jobs, under load.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from faults.upgrade import aftermath, comparison, next_release
from faults.upgrade.next_release import NextRelease
from faults.upgrade.rows import Filling, fill
from pulse_server.database.schema import known_migrations
from tests.eventually import eventually
from tests.postgres.sessions import Connection
from tests.system.stage import QUICK, Stage

SETTINGS = QUICK | {
    f"PULSE_RETENTION_{status}": "forever" for status in ("COMPLETED", "CANCELED", "DEAD_LETTERED")
}
FILLING = Filling(rows=3_000, served=60, lease_seconds=2)
SERVED = "SELECT EXISTS (SELECT FROM pulse.jobs WHERE finished_at IS NULL AND topic = 'served')"
MIGRATIONS = "SELECT name FROM pulse.schema_migrations ORDER BY version"
FIRST = "(SELECT id FROM pulse.all_jobs WHERE topic LIKE 'cold-%' AND status = '{}' ORDER BY id LIMIT 1)"
SABOTAGE = {
    "jobs are lost": f"DELETE FROM pulse.completed_jobs WHERE id = {FIRST.format('COMPLETED')}",
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
async def filled(database_dsn: str) -> AsyncIterator[Connection]:
    """A session, on a database with jobs in every state."""
    connection = await asyncpg.connect(database_dsn, timeout=60)
    await fill(connection, FILLING)
    yield connection
    await connection.execute("DROP SCHEMA before CASCADE")
    connection.terminate()


async def test_jobs_of_every_state_outlive_the_upgrade_and_those_that_wait_run_once(
    database_dsn: str, filled: Connection, tmp_path: Path
) -> None:
    release = NextRelease(tmp_path)
    stage = Stage(database_dsn, tmp_path)
    try:
        old = await stage.pulsed(None, **SETTINGS)
        await stage.worker(old.address, "served=work", "ticks=work")
        new = await stage.pulsed(None, "--migrate", **SETTINGS, **release.variables)
        await stage.worker(new.address, "served=work", "ticks=work")

        async def are_done() -> bool:
            return not (await filled.fetchval(SERVED) or await comparison.are_held_by_the_dead(filled))

        await eventually(are_done, "jobs that are served are finished, and dead workers hold none")
        assert [row["name"] for row in await filled.fetch(MIGRATIONS)] == [
            *(migration.name for migration in known_migrations()),
            next_release.NAME,
        ]
        assert old.bugs == []
        assert await comparison.faults(filled) == []
        assert await aftermath.judge_executions(filled, stage.executions(), [], set()) == []
        for server in (old, new):
            assert await aftermath.look_through(server.address, filled) == []
        assert await aftermath.retire(stage, SETTINGS | release.variables, filled) == []
    finally:
        stage.close()


@pytest.mark.parametrize("fault", SABOTAGE)
async def test_comparison_finds_what_an_upgrade_has_broken(filled: Connection, fault: str) -> None:
    assert await comparison.faults(filled) == []

    await filled.execute(SABOTAGE[fault])

    assert fault in [found.split(" ", 1)[1] for found in await comparison.faults(filled)]
