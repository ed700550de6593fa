"""Scraping a server whose table is large: what an answer takes, and what the sample behind it cost.

Nine tenths of the jobs are finished and one tenth is ready. The scrapes must not notice either.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

import asyncpg

from benchmarks.figures import Figure, percentile
from benchmarks.stand import Stand

JOBS = 1_000_000
TOPICS = 20
SCRAPES = 100

_FILL = """
INSERT INTO pulse.jobs
    (id, topic, payload, max_attempts, attempts, submitted_at, next_run_at, ready, status, finished_at)
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
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as directory:
        socket = Path(directory) / "http.sock"
        async with stand.pulsed(dsn, PULSE_HTTP_ADDR=f"unix:{socket}"):
            text = ""
            while "pulse_ready_jobs{" not in text:  # the first sample is still being taken
                text = await _get(socket)
            times = []
            for _ in range(SCRAPES):
                began = time.perf_counter()
                text = await _get(socket)
                times.append((time.perf_counter() - began) * 1000)
    ready = sum(float(value) for value in re.findall(r"^pulse_ready_jobs{.*} (.*)$", text, re.M))
    assert ready == JOBS // 10, f"the metrics tell of {ready} ready jobs"
    taken, count = (
        float(
            re.findall(rf'^pulse_statement_seconds_{what}{{statement="ready_by_topic"}} (.*)$', text, re.M)[0]
        )
        for what in ("sum", "count")
    )
    return times, taken / count * 1000


async def _get(socket: Path) -> str:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    assert text.startswith("HTTP/1.1 200 "), text[:200]
    return text
