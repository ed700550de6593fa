"""Several schedulers, and schedulers that die: each occurrence makes one job, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from pulse_server.domain.errors import ScheduleExists, ScheduleNotFound, Unavailable
from pulse_server.domain.schedules import CatchUp, Every, Schedule, fire_id
from pulse_server.domain.timetables import plan
from pulse_server.postgres.database import Database
from pulse_server.postgres.schedules import _SQL
from pulse_server.service.schedules import Changes
from tests.postgres.planning import HOUR, MINUTE, SECOND, Planning, RecordingScheduleRepo, definition
from tests.postgres.sessions import Connection, blocked, nobody_waits

MISSED = 50
SCHEDULES = 20
OCCURRENCES = SCHEDULES * (MISSED + 1)


@pytest.fixture
async def rival(second_connection: Connection) -> Connection:
    """A connection in the middle of a transaction. What it does holds its row locks until it commits."""
    await second_connection.execute("BEGIN")
    return second_connection


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
    assert await planning.connection.fetchval("SELECT count(*) FROM pulse.jobs") == len(expected)
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
    assert sorted(map(str, fired)) == sorted(expected), "two schedulers claim the same fire, or nobody does"


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
    """Let whoever fires the occurrence wait in the middle: some jobs inserted, no cursor moved."""
    await rival.execute("BEGIN")
    await rival.execute(
        "INSERT INTO pulse.jobs (id, submitted_at, next_run_at, max_attempts, ready, status, topic, payload) "
        "VALUES ($1, now(), now(), 5, true, 'PENDING', 'mail', '')",
        fire_id(schedule.id, occurrence),
    )


@pytest.mark.parametrize("schedulers", [2], indirect=True)
async def test_schedulers_killed_in_the_middle_of_a_step_lose_nothing_and_double_nothing(
    planning: Planning, schedulers: list[Planning], connection: Connection, second_connection: Connection
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
        await nobody_waits(connection)
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


# --- changes that meet a fire


async def begin_fire(planning: Planning, rival: Connection, schedule: Schedule) -> None:
    fire = plan(schedule, await planning.now())
    rows = await rival.fetch(
        _SQL["fire_schedules"], [fire.schedule_id], [fire.occurrence], [fire.next_run_at], [fire.job_id]
    )
    assert rows


async def test_update_that_waited_for_a_fire_is_made_on_what_the_fire_left(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND, topic="old")
    await begin_fire(planning, rival, schedule)

    updating = await blocked(connection, planning.service.update(schedule.id, Changes(topic="new")))
    await rival.execute("COMMIT")
    updated = await updating

    assert (updated.work.topic, updated.next_run_at) == ("new", schedule.next_run_at + HOUR)
    assert updated.last_run_at == schedule.next_run_at
    (job,) = await planning.jobs_of(schedule)
    assert job.topic == "old"


async def test_updates_of_different_fields_at_the_same_time_both_count(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make()
    await rival.execute(
        "UPDATE pulse.schedules SET priority = 9, updated_at = clock_timestamp() WHERE id = $1", schedule.id
    )

    updating = await blocked(connection, planning.service.update(schedule.id, Changes(topic="new")))
    await rival.execute("COMMIT")
    updated = await updating

    assert (updated.work.topic, updated.work.priority) == ("new", 9)


async def test_update_of_a_once_that_waited_for_its_fire_comes_too_late(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make_once()
    await begin_fire(planning, rival, schedule)

    updating = await blocked(connection, planning.service.update(schedule.id, Changes(topic="new")))
    await rival.execute("COMMIT")

    with pytest.raises(ScheduleNotFound, match="removed after its fire"):
        await updating


async def test_fire_that_meets_an_update_leaves_the_schedule_to_it(
    planning: Planning, rival: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND)
    (due,) = await planning.repo.due_schedules(10)
    await rival.execute(
        "UPDATE pulse.schedules SET interval_ms = 60000, next_run_at = now() + '1 min' WHERE id = $1",
        schedule.id,
    )

    assert await planning.repo.fire_schedules([plan(due, await planning.now())]) == []
    await rival.execute("COMMIT")
    assert await planning.repo.fire_schedules([plan(due, await planning.now())]) == []

    assert await planning.job_ids() == set()
    assert (await planning.current(schedule)).timetable == Every(MINUTE)


async def test_fire_that_meets_a_pause_leaves_the_schedule_to_it(
    planning: Planning, rival: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND)
    await rival.fetch(_SQL["pause_schedule"], schedule.id)

    await planning.scheduler.tick()
    await rival.execute("COMMIT")
    await planning.scheduler.tick()

    assert await planning.job_ids() == set()


async def test_pause_that_waited_for_a_fire_comes_after_it(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND)
    await begin_fire(planning, rival, schedule)

    pausing = await blocked(connection, planning.service.pause(schedule.id))
    await rival.execute("COMMIT")
    paused = await pausing

    assert (paused.paused, paused.next_run_at) == (True, schedule.next_run_at + HOUR)
    assert len(await planning.job_ids()) == 1


async def test_delete_that_waited_for_a_fire_keeps_its_job(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND)
    await begin_fire(planning, rival, schedule)

    deleting = await blocked(connection, planning.service.delete(schedule.id))
    await rival.execute("COMMIT")
    await deleting

    assert await planning.repo.get_schedule(schedule.id) is None
    assert await planning.job_ids(schedule) == {fire_id(schedule.id, schedule.next_run_at)}


async def test_fire_that_meets_a_delete_makes_nothing(planning: Planning, rival: Connection) -> None:
    schedule = await planning.make(overdue=SECOND)
    (due,) = await planning.repo.due_schedules(10)
    await rival.fetch(_SQL["delete_schedule"], schedule.id)

    assert await planning.repo.fire_schedules([plan(due, await planning.now())]) == []
    await rival.execute("COMMIT")
    assert await planning.repo.fire_schedules([plan(due, await planning.now())]) == []

    assert await planning.job_ids() == set()


async def test_resume_that_waited_for_another_resume_does_not_set_the_cursor_back(
    planning: Planning, connection: Connection, rival: Connection
) -> None:
    schedule = await planning.make(overdue=10 * HOUR)
    await planning.service.pause(schedule.id)
    ahead = schedule.next_run_at + 100 * HOUR
    await rival.fetch(_SQL["resume_schedule"], schedule.id, schedule.next_run_at, ahead)

    resuming = await blocked(connection, planning.service.resume(schedule.id))
    await rival.execute("COMMIT")

    assert (await resuming).next_run_at == ahead


# --- names


async def test_twenty_that_declare_the_same_schedule_at_once_make_one(planning: Planning) -> None:
    made = await asyncio.gather(
        *(planning.service.create(definition("reconcile"), replace_existing=False) for _ in range(20))
    )

    assert len({schedule.id for schedule in made}) == 1
    assert len(await planning.repo.list_schedules(limit=100)) == 1


async def test_of_twenty_that_declare_a_name_differently_one_gets_it(planning: Planning) -> None:
    answers = await asyncio.gather(
        *(
            planning.service.create(definition("reconcile", topic=f"topic-{number}"), replace_existing=False)
            for number in range(20)
        ),
        return_exceptions=True,
    )

    (made,) = (answer for answer in answers if isinstance(answer, Schedule))
    refused = [answer for answer in answers if isinstance(answer, ScheduleExists)]
    assert len(refused) == 19
    assert all(made.id in str(refusal) for refusal in refused)
    assert [schedule.id for schedule in await planning.repo.list_schedules(limit=100)] == [made.id]
    assert await planning.repo.get_schedule(made.id) == made


async def test_two_servers_that_replace_a_schedule_by_turns_keep_its_id_and_one_definition(
    planning: Planning,
) -> None:
    first = await planning.service.create(definition("reconcile"), replace_existing=False)
    await asyncio.gather(
        *(
            planning.service.create(definition("reconcile", topic=f"topic-{number}"), replace_existing=True)
            for number in range(4)
        )
    )

    (left,) = await planning.repo.list_schedules(limit=100)
    assert left.id == first.id
    assert left.work.topic.startswith("topic-")


async def test_schedules_without_a_name_are_never_the_same(planning: Planning) -> None:
    made = [await planning.service.create(definition(None), replace_existing=False) for _ in range(2)]

    assert len({schedule.id for schedule in made}) == 2
