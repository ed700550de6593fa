"""Another job has the id of an occurrence: the occurrence fires all the same, once."""

from __future__ import annotations

import logging

import pytest

from pulse_server.schedules.rules import Schedule, fire_id
from tests.fakes.store import a_job
from tests.postgres.planning import HOUR, SECOND, Planning


async def test_occurrence_whose_id_was_taken_fires_once_under_another_and_is_logged(
    planning: Planning, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = await planning.make(overdue=SECOND)
    taken = await _take(planning, schedule)

    with caplog.at_level(logging.WARNING):
        await planning.scheduler.tick()
        await planning.scheduler.tick()

    (job,) = await planning.jobs_of(schedule)
    assert job.id != taken
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR
    (logged,) = [record for record in caplog.records if record.message == "fire_id_taken"]
    assert (logged.schedule_id, logged.taken_id, logged.job_id) == (  # type: ignore[attr-defined]
        schedule.id,
        taken,
        job.id,
    )


async def test_once_whose_id_was_taken_fires(planning: Planning) -> None:
    schedule = await planning.make_once()
    await _take(planning, schedule)
    await planning.scheduler.tick()
    assert len(await planning.jobs_of(schedule)) == 1
    assert await planning.repo.get_schedule(schedule.id) is None


async def test_occurrence_that_another_release_fired_is_not_fired_again(planning: Planning) -> None:
    """A cursor that was set back finds the schedule's own job under the id."""
    schedule = await planning.make(overdue=SECOND)
    await planning.scheduler.tick()
    await planning.set_cursor(schedule, schedule.next_run_at)
    await planning.scheduler.tick()
    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at)}
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR


async def _take(planning: Planning, schedule: Schedule) -> str:
    """Store a job under the id of the occurrence that is due, as a producer of an older server could."""
    taken = fire_id(schedule.id, schedule.next_run_at)
    assert await planning.jobs.insert_jobs([a_job("junk", id=taken)])
    return taken
