"""An occurrence whose job is completed does not fire again. ADR-0018, ADR-0057"""

from __future__ import annotations

from pulse_server.base.ids import new_id
from pulse_server.schedules.rules import fire_id
from tests.postgres.planning import HOUR, SECOND, Planning


async def test_cursor_that_is_set_back_finds_the_completed_job(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    await planning.scheduler.tick()
    await planning.complete_all()
    await planning.set_cursor(schedule, schedule.next_run_at)

    await planning.scheduler.tick()

    assert await planning.live_jobs() == 0
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR
    assert [fired.job_id for fired in planning.repo.batches[-1]] == [None]
    assert [job.id for job in await planning.jobs_of(schedule)] == [
        fire_id(schedule.id, schedule.next_run_at)
    ]


async def test_fire_by_hand_that_is_repeated_finds_the_completed_job(planning: Planning) -> None:
    schedule, job_id = await planning.make(), new_id()
    await planning.service.fire(schedule.id, job_id)
    await planning.complete_all()

    assert await planning.service.fire(schedule.id, job_id) == job_id
    assert await planning.live_jobs() == 0
