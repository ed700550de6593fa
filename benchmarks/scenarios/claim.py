"""The claim statement alone, with small and large backlogs: its cost must not depend on them.

Each figure is the median of many claims of 100 jobs. Each claim is completed before the next one.
"""

from __future__ import annotations

import statistics
import time

import asyncpg

from benchmarks.claiming import claim, complete, job_repo
from benchmarks.figures import Figure
from benchmarks.stand import Stand
from pulse_server.jobs.store import PostgresJobRepo

BATCH = 100
CLAIMS = 60

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
        "20k ready": [(20_000, 1, 0, False)],
        "1M ready": [(1_000_000, 1, 0, False)],
        "20k ready behind 1M delayed of higher priority": [(20_000, 1, 0, False), (1_000_000, 1, 10, True)],
        "1M ready in 5 topics, all claimed": [(1_000_000, 5, 0, False)],
    }
    figures: list[Figure] = []
    for name, fills in backlogs.items():
        topics = ["topic-0"] if "5 topics" not in name else [f"topic-{i}" for i in range(5)]
        async with stand.database() as dsn:
            connection = await asyncpg.connect(dsn)
            try:
                for fill in fills:
                    await connection.execute(_FILL, *fill, timeout=300)
            finally:
                await connection.close()
            await stand.settle(dsn)
            async with job_repo(dsn) as repo:
                medians = [await _claim_repeatedly(repo, topics) for _ in range(stand.repeats)]
        note = ""
        if figures:
            note = f"{statistics.median(medians) / figures[0].median:.2f} × the small backlog"
        figures.append(Figure("claim", f"{BATCH} of {name}", "ms", medians, note))
    return figures


async def _claim_repeatedly(repo: PostgresJobRepo, topics: list[str]) -> float:
    times = []
    for _ in range(CLAIMS):
        started = time.perf_counter()
        claimed = await claim(repo, topics, BATCH)
        times.append((time.perf_counter() - started) * 1000)
        assert len(claimed) == BATCH
        await complete(repo, claimed)
    return statistics.median(times)
