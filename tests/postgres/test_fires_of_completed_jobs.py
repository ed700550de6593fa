"""An occurrence whose job is completed, and so in another table, does not fire again. ADR-0018, ADR-0057"""

from __future__ import annotations

import pytest

from pulse_server.schedules.rules import Schedule, fire_id
from tests.postgres.planning import HOUR, SECOND, Planning
from tests.postgres.sessions import Connection, blocked

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

INSERT = """
INSERT INTO pulse.jobs
    (id, topic, payload, max_attempts, submitted_at, next_run_at, queued, status, schedule_id)
VALUES ($1, 'mail', '{}', 5, now(), now(), true, 'PENDING', $2)
"""


async def has_advanced(planning: Planning, schedule: Schedule) -> bool:
    return (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR


async def test_job_that_is_completed_during_the_step_leaves_the_occurrence_to_the_next_tick(
    planning: Planning, connection: Connection, second_connection: Connection
) -> None:
    """The snapshot of the step has the job in neither table."""
    first, second = await planning.make(overdue=SECOND), await planning.make(overdue=SECOND)
    await second_connection.execute("BEGIN")
    await second_connection.execute(INSERT, fire_id(first.id, first.next_run_at), None)
    step = await blocked(connection, planning.scheduler.tick())
    await connection.execute(INSERT, fire_id(second.id, second.next_run_at), second.id)
    await planning.complete_all()
    await second_connection.execute("ROLLBACK")
    await step

    assert await planning.current(second) == second
    assert [job.schedule_id for job in await planning.jobs_of(first)] == [first.id]
    await planning.scheduler.tick()
    await planning.scheduler.tick()
    assert await has_advanced(planning, second)
    assert len(await planning.jobs_of(second)) == 1
    assert await planning.live_jobs() == 1
