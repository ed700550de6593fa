"""An occurrence whose job is completed, and so in another table, does not fire again. ADR-0018, ADR-0057"""

from __future__ import annotations

import pytest

from pulse_server.domain.ids import new_id
from pulse_server.domain.schedules import Schedule, fire_id
from pulse_server.postgres.jobs import PostgresJobRepo
from tests.fakes.store import LEASE, room, token
from tests.postgres.planning import HOUR, SECOND, Planning
from tests.postgres.sessions import Connection, blocked

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

INSERT = """
INSERT INTO pulse.jobs
    (id, topic, payload, max_attempts, submitted_at, next_run_at, queued, status, schedule_id)
VALUES ($1, 'mail', '{}', 5, now(), now(), true, 'PENDING', $2)
"""


async def complete_all(planning: Planning) -> None:
    jobs = PostgresJobRepo(planning.repo.database)
    claimed = await jobs.claim_batch(["mail"], room("A", 10), LEASE)
    assert len(await jobs.complete_jobs([token(job) for job in claimed])) == len(claimed) > 0


async def live_jobs(planning: Planning) -> int:
    return int(await planning.connection.fetchval("SELECT count(*) FROM pulse.jobs"))


async def has_advanced(planning: Planning, schedule: Schedule) -> bool:
    return (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR


async def test_cursor_that_is_set_back_finds_the_completed_job(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    await planning.scheduler.tick()
    await complete_all(planning)
    await planning.set_cursor(schedule, schedule.next_run_at)

    await planning.scheduler.tick()

    assert await live_jobs(planning) == 0
    assert await has_advanced(planning, schedule)
    assert [fired.job_id for fired in planning.repo.batches[-1]] == [None]
    assert [job.id for job in await planning.jobs_of(schedule)] == [
        fire_id(schedule.id, schedule.next_run_at)
    ]


async def test_job_that_is_completed_during_the_step_leaves_the_occurrence_to_the_next_tick(
    planning: Planning, connection: Connection, second_connection: Connection
) -> None:
    """The snapshot of the step has the job in neither table."""
    first, second = await planning.make(overdue=SECOND), await planning.make(overdue=SECOND)
    await second_connection.execute("BEGIN")
    await second_connection.execute(INSERT, fire_id(first.id, first.next_run_at), None)
    step = await blocked(connection, planning.scheduler.tick())
    await connection.execute(INSERT, fire_id(second.id, second.next_run_at), second.id)
    await complete_all(planning)
    await second_connection.execute("ROLLBACK")
    await step

    assert await planning.current(second) == second
    assert [job.schedule_id for job in await planning.jobs_of(first)] == [first.id]
    await planning.scheduler.tick()
    await planning.scheduler.tick()
    assert await has_advanced(planning, second)
    assert len(await planning.jobs_of(second)) == 1
    assert await live_jobs(planning) == 1


async def test_fire_by_hand_that_is_repeated_finds_the_completed_job(planning: Planning) -> None:
    schedule, job_id = await planning.make(), new_id()
    await planning.service.fire(schedule.id, job_id)
    await complete_all(planning)

    assert await planning.service.fire(schedule.id, job_id) == job_id
    assert await live_jobs(planning) == 0
