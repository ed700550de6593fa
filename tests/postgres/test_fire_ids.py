"""Another job has the id of an occurrence: the occurrence fires all the same, once."""

from __future__ import annotations

import pytest

from pulse_server.schedules.rules import fire_id
from tests.postgres.planning import SECOND, Planning
from tests.postgres.sessions import Connection, blocked

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

JUNK = """
INSERT INTO pulse.jobs (id, topic, payload, max_attempts, submitted_at, next_run_at, queued, status)
VALUES ($1, 'junk', '', 5, now(), now(), true, 'PENDING')
"""


async def test_id_that_is_taken_during_the_step_leaves_the_occurrence_to_the_next_tick(
    planning: Planning, connection: Connection, second_connection: Connection
) -> None:
    schedule = await planning.make(overdue=SECOND)
    await second_connection.execute("BEGIN")
    await second_connection.execute(JUNK, fire_id(schedule.id, schedule.next_run_at))
    step = await blocked(connection, planning.scheduler.tick())
    await second_connection.execute("COMMIT")
    await step
    assert await planning.current(schedule) == schedule

    await planning.scheduler.tick()
    await planning.scheduler.tick()
    assert len(await planning.jobs_of(schedule)) == 1
