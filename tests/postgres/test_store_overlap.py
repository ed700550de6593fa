"""Schedules whose occurrences do not overlap: none fires while a job of the schedule is unfinished."""

from __future__ import annotations

import pytest

from pulse_server.base.errors import InvalidArgument
from pulse_server.schedules.rules import CatchUp, Once, Overlap, Schedule, fire_id
from pulse_server.schedules.service import Changes
from tests.postgres.planning import HOUR, Planning, definition


async def make(planning: Planning, overlap: Overlap, *, missed: int = 0) -> Schedule:
    """A schedule with an occurrence that is due."""
    return await planning.make(overdue=missed * HOUR + HOUR / 60, catch_up=CatchUp.ALL, overlap=overlap)


async def next_occurrence(planning: Planning, schedule: Schedule) -> Schedule:
    """Let the next occurrence come."""
    await planning.set_cursor(schedule, await planning.now())
    await planning.scheduler.tick()
    return await planning.current(schedule)


async def finish(planning: Planning, job_id: str) -> None:
    assert await planning.jobs.cancel_jobs([job_id], "")


async def test_occurrence_is_skipped_while_a_job_is_unfinished(planning: Planning) -> None:
    schedule = await make(planning, Overlap.SKIP)
    await planning.scheduler.tick()
    first = await planning.job_ids(schedule)
    fired_at = (await planning.current(schedule)).last_run_at
    moved = await next_occurrence(planning, schedule)

    assert len(first) == 1
    assert await planning.job_ids(schedule) == first
    assert (moved.last_run_at, moved.queued_for) == (fired_at, None)
    assert moved.next_run_at > await planning.now(), "the cursor moves on"
    await finish(planning, *first)
    await next_occurrence(planning, schedule)
    assert len(await planning.job_ids(schedule)) == 2


async def test_one_occurrence_waits_behind_an_unfinished_job(planning: Planning) -> None:
    schedule = await make(planning, Overlap.QUEUE)
    await planning.scheduler.tick()
    (first,) = await planning.job_ids(schedule)
    waiting = (await next_occurrence(planning, schedule)).queued_for
    assert waiting is not None
    assert (await next_occurrence(planning, schedule)).queued_for == waiting, "the first one"
    assert await planning.job_ids(schedule) == {first}

    await finish(planning, first)
    await planning.scheduler.tick()
    assert await planning.job_ids(schedule) == {first, fire_id(schedule.id, waiting)}
    assert (await planning.current(schedule)).queued_for is None
    await planning.scheduler.tick()
    assert len(await planning.job_ids(schedule)) == 2


async def test_occurrences_overlap_by_default(planning: Planning) -> None:
    schedule = await make(planning, Overlap.ALLOW, missed=2)
    while await planning.due_count():
        await planning.scheduler.tick()

    assert len(await planning.job_ids(schedule)) == 3


async def test_missed_occurrences_are_made_up_for_one_after_the_other(planning: Planning) -> None:
    schedule = await make(planning, Overlap.QUEUE, missed=5)
    while await planning.due_count():
        await planning.scheduler.tick()
    await planning.scheduler.tick()

    assert len(await planning.job_ids(schedule)) == 1
    assert (await planning.current(schedule)).queued_for == schedule.next_run_at + HOUR


async def test_fire_by_hand_is_not_held_up(planning: Planning) -> None:
    schedule = await make(planning, Overlap.SKIP)
    await planning.scheduler.tick()
    await planning.service.fire(schedule.id, "01900000-0000-7000-8000-000000000001")

    assert len(await planning.job_ids(schedule)) == 2


async def test_paused_schedule_keeps_its_waiting_occurrence(planning: Planning) -> None:
    schedule = await make(planning, Overlap.QUEUE)
    await planning.scheduler.tick()
    await next_occurrence(planning, schedule)
    await finish(planning, *await planning.job_ids(schedule))
    await planning.service.pause(schedule.id)
    await planning.scheduler.tick()
    assert len(await planning.job_ids(schedule)) == 1
    await planning.service.resume(schedule.id)
    await planning.scheduler.tick()

    assert len(await planning.job_ids(schedule)) == 2


async def test_other_overlap_drops_the_waiting_occurrence(planning: Planning) -> None:
    schedule = await make(planning, Overlap.QUEUE)
    await planning.scheduler.tick()
    await next_occurrence(planning, schedule)
    changed = await planning.service.update(schedule.id, Changes(overlap=Overlap.SKIP))

    assert (changed.overlap, changed.queued_for) == (Overlap.SKIP, None)


async def test_overlap_is_part_of_the_definition(planning: Planning) -> None:
    wanted = definition("report", overlap=Overlap.SKIP)
    first = await planning.service.create(wanted, replace_existing=True)
    other = definition("report", overlap=Overlap.QUEUE)
    changed = await planning.service.create(other, replace_existing=True)

    assert (first.overlap, changed.id, changed.overlap) == (Overlap.SKIP, first.id, Overlap.QUEUE)


async def test_schedule_that_fires_once_has_no_overlap(planning: Planning) -> None:
    at = await planning.now() + HOUR
    with pytest.raises(InvalidArgument, match="belongs to schedules that repeat"):
        await planning.service.create(
            definition(None, Once(at), overlap=Overlap.SKIP), replace_existing=False
        )
