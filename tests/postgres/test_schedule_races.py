"""Several schedulers, and schedulers that die: each occurrence makes one job, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.schedules.rules import CatchUp, Schedule, fire_id, plan
from pulse_server.schedules.store import _SQL
from tests.postgres.planning import HOUR, SECOND, Planning, RecordingScheduleRepo
from tests.postgres.sessions import Connection, blocked, no_session_waits

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

MISSED = 50
SCHEDULES = 20
OCCURRENCES = SCHEDULES * (MISSED + 1)


@pytest.fixture
async def schedulers(
    planning: Planning, shared_dsn: str, request: pytest.FixtureRequest
) -> AsyncIterator[list[Planning]]:
    """As many schedulers as the test asks for, each with connections of its own, like servers."""
    databases = [Database(shared_dsn) for _ in range(request.param)]
    yield [Planning(RecordingScheduleRepo(database), planning.connection) for database in databases]
    for database in databases:
        await database.close()


async def make_backlog(planning: Planning) -> tuple[list[Schedule], set[str]]:
    """Schedules that all have missed occurrences to replay, and the ids of the jobs that must come of it."""
    schedules = [
        await planning.make(overdue=MISSED * HOUR + number * SECOND, catch_up=CatchUp.ALL)
        for number in range(SCHEDULES)
    ]
    expected = {
        fire_id(schedule.id, schedule.next_run_at + number * HOUR)
        for schedule in schedules
        for number in range(MISSED + 1)
    }
    assert len(expected) == OCCURRENCES >= 1000
    return schedules, expected


async def assert_caught_up(planning: Planning, schedules: list[Schedule], expected: set[str]) -> None:
    assert await planning.connection.fetchval("SELECT count(*) FROM pulse.all_jobs") == len(expected)
    assert await planning.job_ids() == expected
    for schedule in schedules:
        moved = await planning.current(schedule)
        assert moved.next_run_at == schedule.next_run_at + (MISSED + 1) * HOUR
        assert moved.last_run_at == schedule.next_run_at + MISSED * HOUR


async def tick_until_nothing_is_due(planning: Planning) -> None:
    while await planning.due_count():
        await planning.scheduler.tick()


# --- several at once


@pytest.mark.parametrize("schedulers", [2, 5], indirect=True)
async def test_schedulers_on_the_same_due_rows_make_one_job_per_occurrence(
    planning: Planning, schedulers: list[Planning]
) -> None:
    schedules, expected = await make_backlog(planning)

    async def run(one: Planning) -> None:
        while await one.repo.due_schedules(1):
            await one.scheduler.tick()

    await asyncio.gather(*map(run, schedulers))

    await assert_caught_up(planning, schedules, expected)
    fired = [fired.job_id for one in schedulers for batch in one.repo.batches for fired in batch]
    assert sorted(map(str, fired)) == sorted(expected), "two schedulers claim the same fire, or none does"


@pytest.mark.parametrize("schedulers", [5], indirect=True)
async def test_schedulers_that_looked_at_the_same_time_fire_a_once_once(
    planning: Planning, schedulers: list[Planning]
) -> None:
    schedules = [await planning.make_once() for _ in range(30)]
    now = await planning.now()
    looks = [await one.repo.due_schedules(100) for one in schedulers]
    assert all(len(due) == 30 for due in looks)

    done = await asyncio.gather(
        *(
            one.repo.fire_schedules([plan(schedule, now) for schedule in due])
            for one, due in zip(schedulers, looks, strict=True)
        )
    )

    assert len([fired for batch in done for fired in batch if fired.job_id]) == 30
    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at) for schedule in schedules}
    assert await planning.repo.list_schedules(limit=100) == []


async def test_schedule_that_another_scheduler_is_firing_is_left_to_it(
    planning: Planning, rival: Connection
) -> None:
    schedule, other = await planning.make(overdue=HOUR / 2), await planning.make(overdue=SECOND)
    fire = plan(schedule, await planning.now())
    await rival.fetch(
        _SQL["fire_schedules"], [fire.schedule_id], [fire.occurrence], [fire.next_run_at], [fire.job_id]
    )

    await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(other.id, other.next_run_at)}
    await rival.execute("COMMIT")
    await planning.scheduler.tick()
    assert len(await planning.job_ids()) == 2


# --- one that dies


async def hold_occurrence(rival: Connection, schedule: Schedule, occurrence: datetime) -> None:
    """Make the fire of the occurrence wait in the middle: some jobs inserted, no cursor moved."""
    await rival.execute("BEGIN")
    await rival.execute(
        "INSERT INTO pulse.jobs "
        "(id, submitted_at, next_run_at, max_attempts, queued, status, topic, payload) "
        "VALUES ($1, now(), now(), 5, true, 'PENDING', 'mail', '')",
        fire_id(schedule.id, occurrence),
    )


@pytest.mark.parametrize("schedulers", [2], indirect=True)
async def test_schedulers_killed_in_the_middle_of_a_step_lose_nothing_and_double_nothing(
    planning: Planning,
    schedulers: list[Planning],
    connection: Connection,
    second_connection: Connection,
) -> None:
    schedules, expected = await make_backlog(planning)
    dying, living = schedulers

    for number in range(8):
        victim = await planning.current(schedules[number * 2])
        await hold_occurrence(second_connection, victim, victim.next_run_at)
        before = await planning.job_ids()
        step = await blocked(connection, dying.scheduler.tick())
        killed = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND query LIKE '%pulse:fire_schedules%' AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        assert len(killed) == 1
        with pytest.raises(Unavailable):
            await step
        await no_session_waits(connection)
        await second_connection.execute("ROLLBACK")
        assert await planning.job_ids() == before, "a step happens as a whole or not at all"
        await living.scheduler.tick()
    await tick_until_nothing_is_due(living)

    await assert_caught_up(planning, schedules, expected)


async def test_scheduler_whose_answer_was_lost_after_the_commit_fires_nothing_twice(
    planning: Planning,
) -> None:
    """It comes back with the same due row in its hands."""
    schedule = await planning.make(overdue=HOUR / 2)
    due = await planning.repo.due_schedules(10)
    step = [plan(each, await planning.now()) for each in due]
    await planning.repo.fire_schedules(step)

    assert await planning.repo.fire_schedules(step) == []
    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at)}
