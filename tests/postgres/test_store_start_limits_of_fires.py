"""start_within of schedules: a fired job that has not started in time is canceled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.schedules.rules import CatchUp, Every, Schedule
from pulse_server.schedules.service import NO_LIMIT, Changes, Definition
from tests.postgres.planning import HOUR, MINUTE, SECOND, Planning, work


async def canceled(planning: Planning) -> list[str]:
    """Cancel what is late. Returns the ids."""
    return [job.id for job in await planning.jobs.cancel_unstarted(10)]


def limited(start_within: timedelta | None) -> Definition:
    return Definition("report", Every(HOUR), work(start_within=start_within), CatchUp.ONE)


async def declare(planning: Planning, start_within: timedelta | None) -> Schedule:
    return await planning.service.create(limited(start_within), replace_existing=True)


async def test_limit_of_a_fired_job_counts_from_its_occurrence(planning: Planning) -> None:
    schedule = await planning.make(overdue=MINUTE, start_within=HOUR)
    await planning.scheduler.tick()

    (job,) = await planning.jobs_of(schedule)
    assert job.start_by == schedule.next_run_at + HOUR
    assert (job.status, job.ready) == ("PENDING", True)
    assert await canceled(planning) == []


async def test_job_of_a_schedule_without_a_limit_has_none(planning: Planning) -> None:
    schedule = await planning.make(overdue=MINUTE)
    await planning.scheduler.tick()
    await planning.repo.fire_now(schedule.id, new_id())

    assert [job.start_by for job in await planning.jobs_of(schedule)] == [None, None]


async def test_fire_that_is_later_than_the_limit_makes_a_job_that_never_starts(planning: Planning) -> None:
    schedule = await planning.make(overdue=HOUR, start_within=MINUTE)
    await planning.scheduler.tick()

    (job,) = await planning.jobs_of(schedule)
    assert not job.ready
    assert await canceled(planning) == [job.id]
    (job,) = await planning.jobs_of(schedule)
    assert (job.status, job.attempts) == ("CANCELED", 0)


async def test_each_missed_occurrence_has_its_own_limit(planning: Planning) -> None:
    schedule = await planning.make(
        overdue=2 * HOUR + MINUTE, catch_up=CatchUp.ALL, start_within=timedelta(minutes=90)
    )
    while await planning.due_count():
        await planning.scheduler.tick()

    newest_first = await planning.jobs_of(schedule)
    assert [job.ready for job in newest_first] == [True, True, False]
    assert await canceled(planning) == [newest_first[2].id]


async def test_limit_of_a_fire_by_hand_counts_from_that_fire(planning: Planning) -> None:
    schedule = await planning.make(overdue=2 * HOUR, start_within=HOUR)
    before = await planning.now()
    await planning.repo.fire_now(schedule.id, new_id())
    after = await planning.now()

    (job,) = await planning.jobs_of(schedule)
    assert job.start_by is not None
    assert before + HOUR <= job.start_by <= after + HOUR


async def test_changed_limit_of_a_declaration_changes_the_schedule(planning: Planning) -> None:
    made = await declare(planning, None)
    for start_within in (HOUR, MINUTE, None):
        before = await planning.current(made)
        changed = await declare(planning, start_within)
        assert (changed.id, changed.work.start_within) == (made.id, start_within)
        assert changed.updated_at != before.updated_at
        assert changed.next_run_at == made.next_run_at


@pytest.mark.parametrize("start_within", [None, SECOND, 1.5 * HOUR, timedelta(days=400, microseconds=1)])
async def test_same_limit_declared_again_leaves_the_schedule_as_it_is(
    planning: Planning, start_within: timedelta | None
) -> None:
    made = await declare(planning, start_within)

    assert await declare(planning, start_within) == made
    assert await planning.current(made) == made


async def test_update_changes_the_limit_only_if_it_has_one(planning: Planning) -> None:
    made = await declare(planning, HOUR)

    found = []
    for changes in (Changes(priority=3), Changes(start_within=MINUTE), Changes(start_within=NO_LIMIT)):
        found.append((await planning.service.update(made.id, changes)).work.start_within)
    assert found == [HOUR, MINUTE, None]
    (listed,) = await planning.repo.list_schedules(limit=10)
    assert (listed.work.start_within, listed.work.priority) == (None, 3)
