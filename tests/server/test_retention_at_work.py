"""A running server deletes what its settings say, and nothing that is alive."""

from datetime import timedelta

import asyncpg

from pulse_server.settings import Retention
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import server_under_test

AN_HOUR = timedelta(hours=1)

_JOBS = """
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, finished_at, max_attempts, queued, status, topic, payload,
     ended_as)
SELECT gen_random_uuid(), now() - interval '3 hours', now() + interval '1 hour',
       CASE WHEN status <> 'PENDING' THEN now() - interval '2 hours' END, 5, false, status, 'mail', '',
       CASE WHEN status IN ('CANCELED', 'DEAD_LETTERED') THEN status END
FROM unnest(ARRAY['COMPLETED', 'CANCELED', 'DEAD_LETTERED', 'PENDING']) AS status
"""


async def test_server_deletes_finished_jobs_at_its_start_by_its_settings(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    await connection.execute(_JOBS)
    await connection.close()

    kept = Retention(completed=AN_HOUR, canceled=None, dead_lettered=24 * AN_HOUR)
    async with server_under_test(database_dsn, retention=kept) as server:
        await server.table.wait_for_count(0, "status = 'COMPLETED'")

        assert await server.table.count("status IN ('CANCELED', 'DEAD_LETTERED', 'PENDING')") == 3
        counted = {("COMPLETED", "retention"): 1}  # a moment after they are gone
        await eventually(lambda: server.app.metrics.deleted.values == counted, "the deletions are counted")
