"""Servers killed while they fire: each occurrence makes one job, and none is lost."""

from datetime import timedelta

from pulse_server.schedules.rules import fire_id
from tests.eventually import eventually
from tests.system.stage import Stage
from tests.transport.jobs_table import JobsTable

SCHEDULES = 30
MISSED = 90
KILLS = 3
HOUR = timedelta(hours=1)


async def test_kills_of_servers_that_fire_lose_no_occurrence_and_double_none(
    stage: Stage, table: JobsTable
) -> None:
    connection = table.connection
    rows = await connection.fetch(
        """INSERT INTO pulse.schedules
            (id, next_run_at, interval_ms, max_attempts, kind, catch_up, topic, payload)
        SELECT gen_random_uuid(), now() - $2::interval - n * interval '1 s', 3600000, 5, 'interval', 'all',
               'mail', ''
        FROM generate_series(1, $1) AS n
        RETURNING id, next_run_at""",
        SCHEDULES,
        MISSED * HOUR,
    )
    expected = {
        fire_id(str(row["id"]), row["next_run_at"] + number * HOUR)
        for row in rows
        for number in range(MISSED + 1)
    }
    assert len(expected) > 1000

    async def left() -> int:
        return len(expected) - await table.count()

    for _ in range(KILLS):
        before = await left()
        servers = [stage.start_pulsed(), stage.start_pulsed()]

        async def has_begun(before: int = before) -> bool:
            return await left() < before

        await eventually(has_begun, "a server fires")
        for server in servers:
            server.kill()
    assert await left(), "the servers were killed too late to prove anything"
    await stage.pulsed()

    async def nothing_due() -> bool:
        return not await connection.fetchval(
            "SELECT count(*) FROM pulse.schedules WHERE next_run_at <= now()"
        )

    await eventually(nothing_due, "nothing is due any more")
    made = await connection.fetch("SELECT id FROM pulse.all_jobs")
    assert len(made) == len(expected)
    assert {str(row["id"]) for row in made} == expected
