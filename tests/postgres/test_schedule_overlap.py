"""Schedules whose occurrences do not overlap: none fires while a job of the schedule is unfinished."""

from __future__ import annotations

import asyncio

import pytest

from pulse_server.database.connections import Database
from pulse_server.schedules.rules import CatchUp, Overlap
from tests.postgres.planning import HOUR, Planning, RecordingScheduleRepo
from tests.postgres.sessions import Connection


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE])
async def test_racing_schedulers_make_no_second_job(
    planning: Planning, connection: Connection, shared_dsn: str, overlap: Overlap
) -> None:
    """While others finish its jobs: at no moment two of them are unfinished."""
    databases = [Database(shared_dsn) for _ in range(3)]
    schedulers = [Planning(RecordingScheduleRepo(database), connection) for database in databases]
    schedule = await planning.make(overdue=HOUR / 60, catch_up=CatchUp.ALL, overlap=overlap)
    seen: list[int] = []
    finished: list[str] = []

    async def tick(one: Planning) -> None:
        while len(finished) < 20:
            await one.scheduler.tick()

    async def bring_occurrences() -> None:
        while len(finished) < 20:
            await databases[0].operators.fetch(
                "test", "UPDATE pulse.schedules SET next_run_at = now() WHERE id = $1::uuid", schedule.id
            )

    async def finish_jobs() -> None:
        while len(finished) < 20:
            rows = await connection.fetch("SELECT id FROM pulse.jobs WHERE finished_at IS NULL")
            seen.append(len(rows))
            for row in rows:
                await planning.jobs.cancel_jobs([str(row["id"])], "")
                finished.append(row["id"])

    async with asyncio.timeout(60):
        await asyncio.gather(*map(tick, schedulers), bring_occurrences(), finish_jobs())
    for database in databases:
        await database.close()

    assert max(seen) == 1
