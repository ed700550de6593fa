"""The database ends all connections of pulsed, repeatedly, under load."""

from tests.eventually import eventually
from tests.system.journal import started_after_completion
from tests.system.producer import producing
from tests.system.stage import Stage, all_completed
from tests.transport.jobs_table import JobsTable

CUTS = 6

_CUT = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pulsed%'
"""


async def test_cut_connections_lose_nothing(stage: Stage, table: JobsTable) -> None:
    server = await stage.pulsed()
    await stage.worker(server.address, "work", "sync-work")
    async with producing(server.address, pause_seconds=0.005) as producer:
        for _ in range(CUTS):
            await producer.acknowledged(40)
            # Twice: the second cut hits the statements that were repeated.
            for _ in range(2):
                await eventually(lambda: table.connection.fetchval(_CUT), "there is something to cut")
        await producer.acknowledged(40)
    await all_completed(table, producer.handles)
    assert await table.count() == len(producer.handles)
    assert await table.count("attempts > max_attempts") == 0
    assert not await started_after_completion(table, stage.executions())
    assert server.is_running
