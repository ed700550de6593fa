"""Scraping a server whose table is large: the time of an answer, and the cost of its sample.

Nine tenths of the jobs are finished and one tenth is ready. The scrapes must not notice either.
"""

from __future__ import annotations

import time

import asyncpg

from benchmarks.counters import count_of
from benchmarks.figures import Figure, percentile
from benchmarks.stand import Stand

JOBS = 1_000_000
TOPICS = 20
SCRAPES = 100

_FILL = """
INSERT INTO pulse.jobs
    (id, topic, payload, max_attempts, attempts, submitted_at, next_run_at, queued, status, finished_at)
SELECT gen_random_uuid(), 'topic-' || (i / 10 % $2), '\\x7b7d', 5, 0,
       now() - interval '1 hour' + i * interval '1 microsecond', now() - interval '1 hour', i % 10 = 0,
       CASE WHEN i % 10 = 0 THEN 'PENDING' ELSE 'COMPLETED' END, CASE WHEN i % 10 <> 0 THEN now() END
FROM generate_series(1, $1) AS i
"""


async def measure(stand: Stand) -> list[Figure]:
    scrapes: list[list[float]] = []
    samples: list[float] = []
    async with stand.database() as dsn:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(_FILL, JOBS, TOPICS, timeout=600)
        finally:
            await connection.close()
        await stand.settle(dsn)
        for _ in range(stand.repeats):
            times, sample = await _scrape(stand, dsn)
            scrapes.append(times)
            samples.append(sample)
    about = f"{JOBS:,} jobs, {JOBS // 10:,} ready in {TOPICS} topics"
    return [
        *(
            Figure(
                "metrics",
                f"GET /metrics, p{share}",
                "ms",
                [percentile(t, share / 100) for t in scrapes],
                about,
            )
            for share in (50, 95, 100)
        ),
        Figure("metrics", "one sample of ready jobs", "ms", samples, "in the background, every 15 s at most"),
    ]


async def _scrape(stand: Stand, dsn: str) -> tuple[list[float], float]:
    async with stand.pulsed(dsn, with_metrics=True) as server:
        text = ""
        while "pulse_ready_jobs{" not in text:  # the first sample is still being taken
            text = await server.metrics()
        times = []
        for _ in range(SCRAPES):
            began = time.perf_counter()
            text = await server.metrics()
            times.append((time.perf_counter() - began) * 1000)
    ready = count_of(text, "pulse_ready_jobs")
    assert ready == JOBS // 10, f"the metrics have {ready} ready jobs"
    taken, count = (
        count_of(text, f"pulse_statement_seconds_{what}", 'statement="ready_by_topic"')
        for what in ("sum", "count")
    )
    return times, taken / count * 1000
