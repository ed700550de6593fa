"""The overview. Each method sends the SQL section of the same name.

Uses the connection of the vitals: a count over a deep queue must not delay a claim or an operator's
list.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pulse_server.domain.latencies import Buckets
from pulse_server.domain.overview import (
    ConnectedWorker,
    Counts,
    HeldJob,
    Holding,
    Minute,
    Rates,
    Server,
    Sparing,
    TopicActivity,
    TopicBuckets,
    TopicDepth,
    TopicRates,
)
from pulse_server.postgres.connected_workers import workers_from_json, workers_to_json
from pulse_server.postgres.database import Database, Rows
from pulse_server.postgres.progress import progress_from_json
from pulse_server.postgres.statements import statements
from pulse_server.turns import in_turns

_SQL = statements("overview.sql")


class PostgresOverviewRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def topic_depths(self) -> list[TopicDepth]:
        depths: list[TopicDepth] = []
        found: dict[str, Any] = {}
        async for rows in in_turns(await self._fetch("topic_depths")):
            for topic, state, jobs, oldest in rows:
                if found.get("topic") != topic:
                    if found:
                        depths.append(TopicDepth(**found))
                    found = {"topic": topic}
                found[state] = jobs
                if state == "ready":
                    found["oldest_ready_at"] = oldest
        return [*depths, TopicDepth(**found)] if found else depths

    async def topic_rates(self) -> dict[str, TopicRates]:
        rates: dict[str, TopicRates] = {}
        for topic, is_last_minute, *counts in await self._fetch("topic_rates"):
            found, new = rates.get(topic, TopicRates()), Rates(*counts)
            hour = Rates(*(old + more for old, more in zip(found.last_hour, new, strict=True)))
            rates[topic] = TopicRates(new if is_last_minute else found.last_minute, hour)
        return rates

    async def topic_buckets(self) -> dict[str, TopicBuckets]:
        waits: dict[str, dict[int, int]] = defaultdict(dict)
        runs: dict[str, dict[int, int]] = defaultdict(dict)
        for topic, is_wait, bucket, jobs in await self._fetch("topic_buckets"):
            (waits if is_wait else runs)[topic][bucket] = jobs
        return {topic: TopicBuckets(waits[topic], runs[topic]) for topic in waits.keys() | runs.keys()}

    async def topic_minutes(self, topic: str, count: int) -> list[Minute]:
        rows = await self._fetch("topic_minutes", topic, count)
        # Parsing a day of minutes takes 20 ms, which would delay jobs.
        return await asyncio.to_thread(_minutes, rows)

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        counts = zip(*(entry.counts for entry in activity), strict=True)
        await self._fetch(
            "add_topic_minutes",
            [entry.topic for entry in activity],
            *(list(column) for column in counts),
            [json.dumps(dict(entry.wait)) for entry in activity],
            [json.dumps(dict(entry.run)) for entry in activity],
        )

    async def forget_topic_minutes(self, older_than: timedelta) -> None:
        await self._fetch("forget_topic_minutes", older_than)

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        holdings: dict[str, Holding] = {}
        async for rows in in_turns(await self._fetch("held_jobs", per_worker)):
            for row in rows:
                job = HeldJob(
                    str(row["id"]),
                    row["topic"],
                    row["locked_by"],
                    row["attempts"],
                    row["started_at"],
                    row["lease_until"],
                    progress_from_json(row["progress"]),
                )
                found = holdings.get(job.worker_id, Holding())
                holdings[job.worker_id] = Holding(row["held_count"], (*found.jobs, job))
        return holdings

    async def record_server(
        self,
        server_id: str,
        name: str,
        workers: Sequence[ConnectedWorker],
        sparing: Sparing | None = None,
    ) -> None:
        row = workers_to_json(workers)
        await self._fetch("record_server", server_id, name, row, *(sparing or (None, None, None)))

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        await self._fetch("forget_servers", server_id, silent_for)

    async def list_servers(self, silent_for: timedelta) -> list[Server]:
        return [
            Server(
                str(row["id"]),
                row["name"],
                workers_from_json(row["workers"]),
                row["started_at"],
            )
            for row in await self._fetch("list_servers", silent_for)
        ]

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)


def _minutes(rows: Rows) -> list[Minute]:
    return [
        Minute(at, Counts(*counts), _buckets_from_json(wait), _buckets_from_json(run))
        if has_news
        else Minute(at)
        for at, has_news, *counts, wait, run in rows
    ]


def _buckets_from_json(text: str) -> Buckets:
    return {int(bucket): jobs for bucket, jobs in json.loads(text).items()}
