"""Every page of the dashboard over a million jobs: how long the browser waits for each, with a verdict.

A pause before each request lets the server's samples expire, as they do for a person.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Mapping, Sequence
from functools import partial

import pulse
from benchmarks.busy_queue import JOBS, busy_worker, fill_queue, ids_by_name
from benchmarks.figures import Figure, percentile, written
from benchmarks.filling import TOPIC
from benchmarks.repeating import in_turn
from benchmarks.stand import Stand
from benchmarks.verdicts import Verdict

NAME = "dashboard"
MOST_MS = 200.0
REQUESTS = 3
# Longer than the age of a sample of the topics, and than its rest if it takes 80 ms.
PAUSE_SECONDS = 1.6

PAGES: Mapping[str, str] = {
    "overview": "/",
    "overview of a day": "/?minutes=1440",
    "workers": "/workers",
    "topics": "/topics",
    "topic": "/topics/topic-3",
    "topic that runs": "/topics/topic-0",
    "topic with lanes": f"/topics/{TOPIC}",
    "topic with lanes by share": f"/topics/{TOPIC}?lanes=share",
    "jobs": "/jobs",
    "jobs of a topic": "/jobs?topic=topic-3",
    "jobs that wait": "/jobs?status=PENDING",
    "jobs that run": "/jobs?status=RUNNING",
    "jobs of a topic that run": "/jobs?status=RUNNING&topic=topic-0",
    "completed jobs": "/jobs?status=COMPLETED",
    "completed jobs of a topic": "/jobs?status=COMPLETED&topic=topic-3",
    "completed jobs of a topic, none": f"/jobs?status=COMPLETED&topic={TOPIC}",
    "canceled jobs": "/jobs?status=CANCELED",
    "dead letters of a topic": "/jobs?status=DEAD_LETTERED&topic=topic-3",
    "dead letters of a group": "/jobs?topic=topic-5&error_group={group}",
    "jobs of a time": "/jobs?since=30m&before=10m",
    "jobs of a schedule": "/jobs?schedule={schedule}",
    "jobs of a topic with lanes": f"/jobs?topic={TOPIC}",
    "jobs of a lane": f"/jobs?topic={TOPIC}&lane=customer-7",
    "jobs by error": "/jobs?error=number",
    "jobs by error, none": "/jobs?error=nowhere",
    "jobs by metadata": "/jobs?metadata=customer%3Dcustomer-7",
    "jobs by metadata, none": "/jobs?metadata=customer%3Dnobody",
    "jobs of a topic by metadata, none": "/jobs?topic=topic-3&metadata=customer%3Dnobody",
    "completed jobs by metadata, none": "/jobs?status=COMPLETED&metadata=customer%3Dnobody",
    "search by a word": "/find?q=topic-3",
    "search by a part of an id": "/find?q=f9",
    "search by a word, none": "/find?q=nowhere",
    "search by a field": "/find?q=args.order_id%3D42",
    "search by a field of a topic": "/find?q=args.order_id%3D42&topic=topic-3",
    "job that is ready": "/jobs/{ready}",
    "job in a lane": "/jobs/{laned}",
    "job that runs": "/jobs/{running}",
    "job that completed": "/jobs/{completed}",
    "dead letter": "/jobs/{dead}",
    "new job": "/jobs/new",
    "new job from another": "/jobs/new?source={dead}",
    "retry of one, asked": "/jobs/confirm?action=retry&id={dead}",
    "retry of a topic, asked": "/jobs/confirm?action=retry&all=1&status=DEAD_LETTERED&topic=topic-5",
    "cancel of all that wait, asked": "/jobs/confirm?action=cancel&all=1&status=PENDING",
    "delete of all that completed, asked": "/jobs/confirm?action=delete&all=1&status=COMPLETED",
    "workflows": "/workflows",
    "workflow": "/workflows/{workflow}",
    "dead letters": "/dead-letters",
    "dead letters of one topic": "/dead-letters?topic=topic-3",
    "schedules": "/schedules",
    "schedule": "/schedules/{schedule}",
    "schedule to edit": "/schedules/{schedule}/edit",
    "new schedule": "/schedules/new",
    "preview of a schedule": "/schedules/preview?kind=cron&cron=0+9+*+*+1-5",
    "dispatch": "/dispatch",
    "limits": "/topics?view=limits",
    "settings of topics": "/topics?view=settings",
    "audit": "/audit",
    "audit of a topic": "/audit?topic=topic-3",
    "audit of a user": "/audit?user=user-3",
    "audit of a job": "/audit?id={dead}",
    "refused calls": "/audit?refused=1",
}
"""Path by name. The ids are those of `ids_by_name`."""


async def measure(stand: Stand) -> list[Figure]:
    times = await _measure(stand)
    verdicts = [_verdict(page, runs) for page, runs in times.items()]
    for verdict in verdicts:
        print(verdict.line, flush=True)
    stand.verdicts += verdicts
    note = f"{stand.sized(JOBS):,} jobs"
    all_times = [taken for runs in times.values() for run in runs for taken in run]
    return [
        *(
            Figure(NAME, f"{page}, p50", "ms", [percentile(run, 0.5) for run in runs], note)
            for page, runs in times.items()
        ),
        Figure(NAME, "all pages, p95", "ms", [percentile(all_times, 0.95)], note),
    ]


def _verdict(page: str, runs: Sequence[Sequence[float]]) -> Verdict:
    median = percentile([taken for run in runs for taken in run], 0.5)
    return Verdict(f"{NAME}, {page}", f"p50 {written(median)} ms, at most {MOST_MS:g}", median <= MOST_MS)


async def _measure(stand: Stand) -> dict[str, list[list[float]]]:
    """Return the times of each page, one list per repeat."""
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn, with_metrics=True) as server,
        pulse.Pulse(server.address) as client,
        stand.dashboard(server.address) as address,
    ):
        await fill_queue(dsn, client, stand.sized)
        await stand.settle(dsn)
        async with busy_worker(server.address):
            ids = await ids_by_name(dsn, client)
            return await in_turn(
                stand,
                {page: partial(_load, stand, address, path.format(**ids)) for page, path in PAGES.items()},
            )


async def _load(stand: Stand, address: str, path: str) -> list[float]:
    with stand.background.watched():
        return await asyncio.to_thread(_ask, address, path)


def _ask(address: str, path: str) -> list[float]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        _, cookie = _get(connection, path, "")  # the first one makes the session, and is not measured
        times = []
        for _ in range(REQUESTS):
            time.sleep(PAUSE_SECONDS)
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
