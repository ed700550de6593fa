"""Changes of schedules at the same time as fires, and as each other. Staged with two connections."""

from __future__ import annotations

import asyncio

import pytest

from pulse_server.base.errors import ScheduleExists, ScheduleNotFound
from pulse_server.schedules.rules import Every, Schedule, fire_id, plan
from pulse_server.schedules.service import Changes
from pulse_server.schedules.store import _SQL
from tests.postgres.planning import HOUR, MINUTE, SECOND, Planning, definition
from tests.postgres.sessions import Connection, blocked

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")


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


async def test_twenty_that_declare_the_same_schedule_at_once_make_one(
    planning: Planning,
) -> None:
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
