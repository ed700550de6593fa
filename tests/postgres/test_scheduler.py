"""One tick after another on a real database: what fires, what does not, and what a schedule leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from pulse_server.base.loops import lease_clock
from pulse_server.schedules import service as scheduling
from pulse_server.schedules.rules import CatchUp, Every, Overlap, Schedule, fire_id
from pulse_server.schedules.service import SCHEDULE_BATCH
from tests.eventually import PATIENCE_SECONDS
from tests.postgres.planning import MINUTE, SECOND, Planning
from tests.postgres.sessions import Connection

AT_ONCE = timedelta(0)


# --- steps


# --- catching up


# --- those that cannot be read


# --- many


async def test_ten_thousand_schedules_due_at_once_drain_by_batches_the_longest_due_first(
    planning: Planning,
) -> None:
    await planning.connection.execute(
        """INSERT INTO pulse.schedules (id, next_run_at, interval_ms, max_attempts, kind, topic, payload)
        SELECT gen_random_uuid(), now() - n * interval '1 ms', 3600000, 5, 'interval', 'mail', ''
        FROM generate_series(1, 10000) AS n"""
    )

    ticks = 1
    while await planning.scheduler.tick() == AT_ONCE:
        ticks += 1

    assert ticks <= 102
    assert max(map(len, planning.repo.batches)) == SCHEDULE_BATCH
    oldest = [min(fired.occurrence for fired in batch) for batch in planning.repo.batches]
    assert oldest == sorted(oldest)
    assert await planning.due_count() == 0
    assert (
        await planning.connection.fetchval("SELECT count(DISTINCT schedule_id) FROM pulse.all_jobs")
        == await planning.connection.fetchval("SELECT count(*) FROM pulse.all_jobs")
        == 10_000
    )


async def test_as_many_locked_schedules_as_a_batch_takes_hide_no_other(
    planning: Planning, second_connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "SCHEDULE_BATCH", 3)
    locked = [await planning.make(overdue=MINUTE) for _ in range(7)]
    free = [await planning.make(overdue=SECOND) for _ in range(4)]
    async with locked_schedules(second_connection, locked):
        while await planning.scheduler.tick() == AT_ONCE:
            pass
        assert [len(await planning.jobs_of(schedule)) for schedule in free] == [1] * len(free)
        assert await planning.scheduler.tick() is None, "it does not spin over the locked ones"
    monkeypatch.setattr(scheduling, "lease_clock", lambda: lease_clock() + 2.0)  # the rest is over
    while await planning.scheduler.tick() == AT_ONCE:
        pass
    assert [len(await planning.jobs_of(schedule)) for schedule in locked] == [1] * len(locked)


async def test_as_many_locked_schedules_as_a_batch_takes_hide_no_kept_occurrence(
    planning: Planning, second_connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "SCHEDULE_BATCH", 3)
    schedules = [await planning.make(overlap=Overlap.QUEUE) for _ in range(8)]
    await planning.connection.execute(
        "UPDATE pulse.schedules SET queued_for = now() - CASE id WHEN $1 THEN 1 ELSE 2 END * interval '1 s'",
        schedules[-1].id,
    )
    async with locked_schedules(second_connection, schedules[:-1]):
        for _ in range(3):
            await planning.scheduler.tick()
        assert len(await planning.jobs_of(schedules[-1])) == 1


@asynccontextmanager
async def locked_schedules(session: Connection, schedules: Sequence[Schedule]) -> AsyncIterator[None]:
    await session.execute("BEGIN")
    await session.execute(
        "SELECT FROM pulse.schedules WHERE id = ANY($1) FOR UPDATE", [schedule.id for schedule in schedules]
    )
    yield
    await session.execute("ROLLBACK")


# --- intervals below a second


async def test_five_fires_a_second_are_made_by_a_running_loop(planning: Planning) -> None:
    schedule = await planning.make(Every(timedelta(milliseconds=200)), catch_up=CatchUp.ALL)
    running = asyncio.create_task(planning.scheduler.loop.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(await planning.jobs_of(schedule)) < 5:
                await planning.scheduler.loop.wait_for_ticks(1)
    finally:
        planning.scheduler.loop.stop()
        await running
    occurrences = await planning.connection.fetch("SELECT id FROM pulse.all_jobs")
    expected = {
        fire_id(schedule.id, schedule.next_run_at + n * timedelta(milliseconds=200)) for n in range(300)
    }
    assert {str(row["id"]) for row in occurrences} <= expected, "each of them on the beat"
