"""The schedules that an application declares, as its workers report them when they start."""

from __future__ import annotations

from pulse_server.database.connections import Database
from tests.postgres.planning import Planning, RecordingScheduleRepo
from tests.postgres.sessions import Connection


async def test_application_that_has_no_schedules_opens_no_connection_of_operators(
    planning: Planning, connection: Connection, shared_dsn: str
) -> None:
    await planning.make()  # of no application
    database = Database(shared_dsn)
    try:
        worker = Planning(RecordingScheduleRepo(database), connection)
        assert await worker.service.declare("shop", []) == []
        assert database.operators.use.opened == 0
    finally:
        await database.close()
