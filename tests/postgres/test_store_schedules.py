"""Schedules: stored once by name, changed as they were read, listed, declared and deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pulse_server.base.errors import ScheduleExists
from pulse_server.base.ids import PageKey, new_id
from pulse_server.schedules.rules import Cron, Every, Once, Overlap, Schedule, Timetable
from tests.postgres.planning import HOUR, HOURLY, MINUTE, SECOND, Planning, definition

TIMETABLES = [Every(timedelta(milliseconds=1500)), Cron("0 9 * * 1-5", "Europe/Paris"), Cron("@daily")]


@pytest.mark.parametrize("timetable", TIMETABLES, ids=str)
async def test_schedule_is_read_as_it_was_created(planning: Planning, timetable: Timetable) -> None:
    made = await planning.make(timetable, name="report", metadata={"a": "ü"}, payload=b"what")

    assert (made.timetable, made.work.payload, made.work.metadata) == (timetable, b"what", {"a": "ü"})
    assert made.created_at is not None
    assert made.updated_at is not None
    assert made.created_at <= made.updated_at
    assert await planning.repo.get_schedule(made.id) == made
    assert await planning.repo.find_schedule("report") == made


async def test_once_is_read_as_it_was_created(planning: Planning) -> None:
    made = await planning.make_once(overdue=-HOUR)

    assert isinstance(made.timetable, Once)
    assert made.timetable.at == made.next_run_at
    assert await planning.current(made) == made


async def test_name_is_taken_once_and_no_name_as_often_as_one_likes(planning: Planning) -> None:
    made = await planning.make(name="report")
    await planning.make()
    await planning.make()

    assert await planning.repo.create_schedule(replace(made, id=new_id())) is None
    assert await planning.repo.find_schedule("report") == made
    assert await planning.repo.find_schedule("other") is None
    assert await planning.repo.get_schedule(new_id()) is None


async def test_other_definition_under_a_name_replaces_it_or_is_refused(planning: Planning) -> None:
    made = await planning.service.create(definition("report"), replace_existing=False)
    other = definition("report", Every(MINUTE))

    with pytest.raises(ScheduleExists):
        await planning.service.create(other, replace_existing=False)
    changed = await planning.service.create(other, replace_existing=True)
    assert (changed.id, changed.timetable, changed.created_at) == (made.id, Every(MINUTE), made.created_at)


async def test_change_of_a_schedule_that_changed_since_it_was_read_is_refused(planning: Planning) -> None:
    made = await planning.make(overdue=SECOND)
    changed = await planning.repo.update_schedule(replace(made, overlap=Overlap.SKIP), made)
    assert changed is not None
    assert await planning.repo.update_schedule(replace(made, overlap=Overlap.QUEUE), made) is None
    await planning.scheduler.tick()
    assert await planning.repo.update_schedule(replace(changed, overlap=Overlap.QUEUE), changed) is None
    assert (await planning.current(made)).overlap is Overlap.SKIP


async def test_resume_of_a_schedule_whose_cursor_moved_is_refused(planning: Planning) -> None:
    made = await planning.make()
    await planning.repo.pause_schedule(made.id)

    assert await planning.repo.resume_schedule(made.id, made.next_run_at - HOUR, made.next_run_at) is None
    assert (await planning.current(made)).paused
    assert await planning.repo.pause_schedule(new_id()) is None


async def test_schedules_are_listed_oldest_first_page_by_page(planning: Planning) -> None:
    made = [await planning.make() for _ in range(3)]

    first = await planning.repo.list_schedules(limit=2)
    assert [schedule.id for schedule in first] == [made[0].id, made[1].id]
    created_at = first[-1].created_at
    assert created_at is not None
    rest = await planning.repo.list_schedules(limit=2, after=PageKey(created_at, first[-1].id))
    assert [schedule.id for schedule in rest] == [made[2].id]


async def test_schedules_of_one_topic_are_listed(planning: Planning) -> None:
    made = await planning.make()

    assert [one.id for one in await planning.repo.list_schedules(limit=9, topic=made.work.topic)] == [made.id]
    assert await planning.repo.list_schedules(limit=9, topic="another") == []


async def test_schedule_is_deleted_once_and_its_name_is_free(planning: Planning) -> None:
    made = await planning.make(name="report")

    assert await planning.repo.delete_schedule(made.id)
    assert not await planning.repo.delete_schedule(made.id)
    assert (await planning.make(name="report")).id != made.id


async def test_fire_by_hand_under_a_taken_id_makes_no_job(planning: Planning) -> None:
    one, other, job_id = await planning.make(), await planning.make(), new_id()

    assert await planning.repo.fire_now(one.id, job_id) == "mail"
    assert await planning.repo.fire_now(other.id, job_id) is None
    assert await planning.repo.fire_now(new_id(), new_id()) is None
    assert await planning.repo.has_fired(one.id, job_id)
    assert not await planning.repo.has_fired(other.id, job_id)
    assert not await planning.repo.has_fired(one.id, new_id())


async def test_all_schedules_at_a_glance(planning: Planning) -> None:
    empty = await planning.repo.scheduler_status()
    assert (empty.active, empty.paused, empty.next_run_at, empty.late) == (0, 0, None, timedelta(0))
    await planning.make()
    late, paused = await planning.make(overdue=MINUTE), await planning.make(overdue=HOUR)
    await planning.repo.pause_schedule(paused.id)

    status = await planning.repo.scheduler_status()
    assert (status.active, status.paused, status.next_run_at) == (2, 1, late.next_run_at)
    assert MINUTE <= status.late < 2 * MINUTE


# --- schedules that an application declares


async def declared(planning: Planning, user: str | None, *names: str) -> list[Schedule]:
    made = [await planning.make(HOURLY, name=name) for name in names]
    return [
        await planning.repo.update_schedule(replace(schedule, declared_by=user), schedule)
        for schedule in made
    ]


async def test_declaration_names_the_schedules_that_vanished(planning: Planning) -> None:
    a, b = await declared(planning, None, "a", "b")
    assert not await planning.repo.has_declared("shop")
    assert await planning.repo.declare_schedules("shop", ["a", "b"], None, 10) == []
    assert await planning.repo.has_declared("shop")
    assert await planning.repo.declare_schedules("shop", ["b"], None, 10) == ["a"]

    gone, kept = await planning.current(a), await planning.current(b)
    assert (gone.application, kept.application, kept.vanished_at) == ("shop", "shop", None)
    assert gone.vanished_at is not None
    assert await planning.repo.declare_schedules("shop", ["b"], None, 10) == ["a"], "until it is deleted"
    assert (await planning.current(a)).vanished_at == gone.vanished_at
    assert await planning.repo.declare_schedules("shop", [], None, 1) == ["a"], "as many as asked for"
    assert await planning.repo.declare_schedules("shop", ["a", "b"], None, 10) == []
    assert (await planning.current(a)).vanished_at is None


async def test_declaration_of_a_user_leaves_the_schedules_of_others_alone(planning: Planning) -> None:
    (own,) = await declared(planning, "ada", "own")
    (other,) = await declared(planning, "bob", "other")
    await planning.repo.declare_schedules("shop", ["own", "other"], None, 10)

    assert await planning.repo.declare_schedules("shop", [], "ada", 10) == ["own"]
    assert (await planning.current(own)).vanished_at is not None
    assert (await planning.current(other)).vanished_at is None
    assert await planning.repo.declare_schedules("mill", ["other"], "ada", 10) == []
    assert (await planning.current(other)).application == "shop"
