"""One tick after another on a real database: what fires, what does not, and what a schedule leaves behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pulse_server.domain.schedules import CatchUp, Every, fire_id
from pulse_server.service.scheduler import SCHEDULE_BATCH
from tests.eventually import PATIENCE_SECONDS
from tests.postgres.planning import StoredPlanning

AT_ONCE = timedelta(0)


# --- steps


# --- catching up


# --- those that cannot be read


# --- many


async def test_ten_thousand_schedules_due_at_once_drain_by_batches_the_longest_due_first(
    stored_planning: StoredPlanning,
) -> None:
    await stored_planning.connection.execute(
        """INSERT INTO pulse.schedules (id, next_run_at, interval_ms, max_attempts, kind, topic, payload)
        SELECT gen_random_uuid(), now() - n * interval '1 ms', 3600000, 5, 'interval', 'mail', ''
        FROM generate_series(1, 10000) AS n"""
    )

    ticks = 1
    while await stored_planning.scheduler.tick() == AT_ONCE:
        ticks += 1

    assert ticks <= 102
    assert max(map(len, stored_planning.repo.batches)) == SCHEDULE_BATCH
    oldest = [min(fired.occurrence for fired in batch) for batch in stored_planning.repo.batches]
    assert oldest == sorted(oldest)
    assert await stored_planning.due_count() == 0
    assert (
        await stored_planning.connection.fetchval("SELECT count(DISTINCT schedule_id) FROM pulse.all_jobs")
        == await stored_planning.connection.fetchval("SELECT count(*) FROM pulse.all_jobs")
        == 10_000
    )


# --- intervals below a second


async def test_five_fires_a_second_are_made_by_a_running_loop(stored_planning: StoredPlanning) -> None:
    schedule = await stored_planning.make(Every(timedelta(milliseconds=200)), catch_up=CatchUp.ALL)
    running = asyncio.create_task(stored_planning.scheduler.loop.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(await stored_planning.jobs_of(schedule)) < 5:
                await stored_planning.scheduler.loop.wait_for_ticks(1)
    finally:
        stored_planning.scheduler.loop.stop()
        await running
    occurrences = await stored_planning.connection.fetch("SELECT id FROM pulse.all_jobs")
    expected = {
        fire_id(schedule.id, schedule.next_run_at + n * timedelta(milliseconds=200)) for n in range(300)
    }
    assert {str(row["id"]) for row in occurrences} <= expected, "each of them on the beat"
