"""Paused schedules, and fires by an operator."""

from __future__ import annotations

import pytest

from pulse_server.schedules.rules import CatchUp, Every, fire_id, plan
from tests.postgres.planning import HOUR, HOURLY, MINUTE, SECOND, Planning


async def test_paused_schedule_does_not_fire(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    await planning.service.pause(schedule.id)

    await planning.scheduler.tick()

    assert await planning.job_ids() == set()
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at


async def test_pause_between_the_look_and_the_step_wins(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    (due,) = await planning.repo.due_schedules(10)
    await planning.service.pause(schedule.id)

    assert await planning.repo.fire_schedules([plan(due, await planning.now())]) == []
    assert await planning.job_ids() == set()


@pytest.mark.parametrize("catch_up", CatchUp)
async def test_what_was_missed_while_paused_stays_missed(planning: Planning, catch_up: CatchUp) -> None:
    schedule = await planning.make(Every(MINUTE), overdue=HOUR + SECOND, catch_up=catch_up)
    await planning.service.pause(schedule.id)

    resumed = await planning.service.resume(schedule.id)
    await planning.scheduler.tick()

    assert not resumed.paused
    assert resumed.next_run_at == schedule.next_run_at + HOUR + MINUTE
    assert await planning.job_ids() == set()


async def test_once_that_was_missed_while_paused_fires_when_it_is_resumed(planning: Planning) -> None:
    schedule = await planning.make_once(overdue=HOUR)
    await planning.service.pause(schedule.id)
    await planning.scheduler.tick()
    assert await planning.job_ids() == set()

    await planning.service.resume(schedule.id)
    await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at)}


async def test_resume_of_a_schedule_that_is_not_paused_skips_nothing(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)

    assert (await planning.service.resume(schedule.id)).next_run_at == schedule.next_run_at


async def test_fire_by_hand_makes_a_job_and_leaves_the_timetable_alone(planning: Planning) -> None:
    schedule = await planning.make(HOURLY)
    await planning.service.pause(schedule.id)
    paused = await planning.current(schedule)
    job_id = fire_id(schedule.id, await planning.now())

    assert await planning.service.fire(schedule.id, job_id) == job_id

    assert await planning.job_ids(schedule) == {job_id}
    assert await planning.current(schedule) == paused
    assert planning.roster.woken == [{"mail"}]
