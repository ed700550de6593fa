"""The claim statement alone, against backlogs of very different size: its cost must not depend on them.

Each figure is the median of many claims of 100 jobs, rolled back, so that every one meets the same table.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import asyncpg

from benchmarks.figures import Figure
from benchmarks.stand import Stand
from pulse_server.postgres.database import HOT_PLANS
from pulse_server.postgres.statements import statements
from pulse_server.repos.jobs import CLAIM_BYTES

BATCH = 100
CLAIMS = 60
_CLAIM = statements("transitions/work.sql")["claim_batch"]

# Times lie a microsecond apart, as a stream of submits leaves them.
_FILL = """
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
SELECT gen_random_uuid(), 'topic-' || (i % $2), '\\x7b7d', $3, 5,
       now() - interval '1 hour' + i * interval '1 microsecond',
       now() + CASE WHEN $4 THEN interval '1 day' ELSE interval '-1 hour' END, NOT $4, 'PENDING'
FROM generate_series(1, $1) AS i
"""


async def measure(stand: Stand) -> list[Figure]:
    backlogs = {
        "1k ready": [(1_000, 1, 0, False)],
        "1M ready": [(1_000_000, 1, 0, False)],
        "1k ready behind 1M delayed of higher priority": [(1_000, 1, 0, False), (1_000_000, 1, 10, True)],
        "1M ready in 5 topics, all claimed": [(1_000_000, 5, 0, False)],
    }
    figures: list[Figure] = []
    for name, fills in backlogs.items():
        topics = ["topic-0"] if "5 topics" not in name else [f"topic-{i}" for i in range(5)]
        async with stand.database() as dsn:
            connection = await asyncpg.connect(dsn, server_settings=HOT_PLANS)
            try:
                for fill in fills:
                    await connection.execute(_FILL, *fill, timeout=300)
                await stand.settle(dsn)
                medians = [await _claim_repeatedly(connection, topics) for _ in range(stand.repeats)]
            finally:
                await connection.close()
        note = ""
        if figures:
            note = f"{statistics.median(medians) / figures[0].median:.2f} × the 1k backlog"
        figures.append(Figure("claim", f"{BATCH} of {name}", "ms", medians, note))
    return figures


async def _claim_repeatedly(connection: asyncpg.Connection[asyncpg.Record], topics: list[str]) -> float:
    times = []
    for _ in range(CLAIMS):
        transaction = connection.transaction()
        await transaction.start()
        started = time.perf_counter()
        rows = await connection.fetch(
            _CLAIM, topics, BATCH, [1] * BATCH, ["worker"], [True], timedelta(seconds=30), CLAIM_BYTES, [], 0
        )
        times.append((time.perf_counter() - started) * 1000)
        await transaction.rollback()
        assert len(rows) == BATCH
    return statistics.median(times)
