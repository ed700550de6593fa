"""Pages of the dashboard over a small table and over a large one: how long the browser waits for each.

The same pages are requested in the same run with a thousand jobs and with a million; most of them are
finished, some wait, and some are dead letters with one of 20 errors. A pause between two requests lets the
server's samples of a second expire, as they do for a person.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

import pulse
from benchmarks.figures import Figure, percentile
from benchmarks.stand import Stand

SMALL, LARGE = 1_000, 1_000_000
TOPICS = 20
SCHEDULES = 25
REQUESTS = 20
_PAUSE_SECONDS = 0.1

_FILL = """
INSERT INTO pulse.jobs
    (id, topic, payload, max_attempts, attempts, submitted_at, next_run_at, queued, status, finished_at,
     last_error, error_group, ended_as)
SELECT gen_random_uuid(), 'topic-' || (i / 10 % $2), '\\x7b7d', 5, 1,
       now() - interval '1 hour' + i * interval '1 microsecond', now() - interval '1 hour',
       made.status = 'PENDING', made.status,
       CASE WHEN made.status <> 'PENDING' THEN now() - i * interval '1 millisecond' END,
       CASE WHEN made.status = 'DEAD_LETTERED' THEN 'ValueError: number ' || i END,
       CASE WHEN made.status = 'DEAD_LETTERED' THEN md5((i % 20)::text) ELSE '' END,
       CASE WHEN made.status = 'DEAD_LETTERED' THEN made.status END
FROM generate_series(1, $1) AS i
CROSS JOIN LATERAL (
    SELECT CASE WHEN i % 10 = 0 THEN 'PENDING' WHEN i % 50 = 1 THEN 'DEAD_LETTERED' ELSE 'COMPLETED' END
) AS made (status)
"""
_ONE_THAT_DIED = "SELECT id FROM pulse.jobs WHERE status = 'DEAD_LETTERED' LIMIT 1"
_MINUTES = """
INSERT INTO pulse.topic_minutes (minute, topic, submitted, completed, failed)
SELECT date_trunc('minute', now()) - minute * interval '1 minute', topic, 100, 90, 10
FROM generate_series(1, 60) AS minute, unnest('{""}'::text[] || ARRAY(
    SELECT 'topic-' || i FROM generate_series(0, $1 - 1) AS i)) AS topic
"""


async def measure(stand: Stand) -> list[Figure]:
    small = await _measure(stand, SMALL)
    large = await _measure(stand, LARGE)
    return [
        Figure(
            "dashboard",
            f"{page}, p{share}",
            "ms",
            [percentile(times, share / 100) for times in large[page]],
            f"{LARGE:,} jobs; {_ratio(large[page], small[page], share):.2f} times that with {SMALL:,}",
        )
        for page in large
        for share in (50, 95)
    ]


def _ratio(large: list[list[float]], small: list[list[float]], share: int) -> float:
    def median(repeats: list[list[float]]) -> float:
        return percentile([percentile(times, share / 100) for times in repeats], 0.5)

    return median(large) / median(small)


async def _measure(stand: Stand, jobs: int) -> dict[str, list[list[float]]]:
    """Return the times of each page, one list per repeat."""
    async with stand.database() as dsn:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(_FILL, jobs, TOPICS, timeout=600)
            await connection.execute(_MINUTES, TOPICS)
            dead = await connection.fetchval(
                "SELECT id FROM pulse.jobs WHERE status = 'DEAD_LETTERED' LIMIT 1"
            )
        finally:
            await connection.close()
        await stand.settle(dsn)
        async with (
            stand.pulsed(dsn) as server,
            stand.dashboard(server.address) as address,
            _schedules(server.address),
        ):
            pages = {
                "overview": "/",
                "jobs": "/jobs",
                "jobs of a topic": "/jobs?topic=topic-3",
                "job": f"/jobs/{dead}",
                "dead letters": "/dead-letters",
                "retry of all, asked": "/jobs/confirm?action=retry&all=1&status=DEAD_LETTERED&topic=topic-5",
                "schedules": "/schedules",
                "workers": "/workers",
                "dispatch": "/dispatch",
            }
            times: dict[str, list[list[float]]] = {page: [] for page in pages}
            for _ in range(stand.repeats):
                for page, path in pages.items():
                    times[page].append(await asyncio.to_thread(_ask, address, path))
            return times


@asynccontextmanager
async def _schedules(server: str) -> AsyncIterator[None]:
    async with pulse.Pulse(server) as client:
        for number in range(SCHEDULES):
            await client.schedule("topic-1", {}, pulse.Cron(f"{number} 3 * * *"), name=f"number {number}")
        await client.schedule("topic-1", {}, pulse.Every(timedelta(hours=1)), name="every hour")
        yield


def _ask(address: str, path: str) -> list[float]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        _, cookie = _get(connection, path, "")  # the first one makes the session, and is not measured
        times = []
        for _ in range(REQUESTS):
            time.sleep(_PAUSE_SECONDS)
            seconds, _ = _get(connection, path, cookie)
            times.append(seconds * 1000)
        return times
    finally:
        connection.close()


def _get(connection: http.client.HTTPConnection, path: str, cookie: str) -> tuple[float, str]:
    began = time.perf_counter()
    connection.request("GET", path, headers={"cookie": cookie})
    response = connection.getresponse()
    text = response.read()
    taken = time.perf_counter() - began
    assert response.status == 200, f"{path} answered {response.status}: {text[:500]!r}"
    return taken, response.headers.get("set-cookie", "").partition(";")[0]
