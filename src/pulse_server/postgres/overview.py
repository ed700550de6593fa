"""What operators see at a glance. Each method sends the SQL section of its own name.

On the connection of its own that the vital signs use: a count over a deep queue must not keep a claim or an
operator's list waiting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pulse_server.domain.overview import (
    ConnectedWorker,
    HeldJob,
    Holding,
    Rates,
    Server,
    TopicActivity,
    TopicDepth,
    TopicRates,
)
from pulse_server.postgres.database import Database, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("overview.sql")


class PostgresOverviewRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def topic_depths(self) -> list[TopicDepth]:
        depths: dict[str, TopicDepth] = {}
        for row in await self._fetch("topic_depths"):
            depth = depths.get(row["topic"], TopicDepth(row["topic"]))
            depth = replace(depth, **{row["state"]: row["jobs"]})
            if row["state"] == "ready":
                depth = replace(depth, oldest_ready_at=row["oldest"])
            depths[depth.topic] = depth
        return list(depths.values())

    async def topic_rates(self) -> dict[str, TopicRates]:
        rates: dict[str, TopicRates] = {}
        for topic, is_last_minute, *counts in await self._fetch("topic_rates"):
            found, new = rates.get(topic, TopicRates()), Rates(*counts)
            hour = Rates(*(old + more for old, more in zip(found.last_hour, new, strict=True)))
            rates[topic] = TopicRates(new if is_last_minute else found.last_minute, hour)
        return rates

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        columns = zip(*activity, strict=True)
        await self._fetch("add_topic_minutes", *(list(column) for column in columns))

    async def forget_topic_minutes(self, older_than: timedelta) -> None:
        await self._fetch("forget_topic_minutes", older_than)

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        holdings: dict[str, Holding] = {}
        for row in await self._fetch("held_jobs", per_worker):
            job = HeldJob(
                str(row["id"]),
                row["topic"],
                row["locked_by"],
                row["attempts"],
                row["started_at"],
                row["lease_until"],
            )
            found = holdings.get(job.worker_id, Holding())
            holdings[job.worker_id] = Holding(row["held_count"], (*found.jobs, job))
        return holdings

    async def record_server(self, server_id: str, name: str, workers: Sequence[ConnectedWorker]) -> None:
        told = [
            {
                "worker_id": worker.worker_id,
                "topics": worker.topics,
                "capacity": worker.capacity,
                "connected_at": worker.connected_at.isoformat(),
            }
            for worker in workers
        ]
        await self._fetch("record_server", server_id, name, json.dumps(told))

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        await self._fetch("forget_servers", server_id, silent_for)

    async def list_servers(self, silent_for: timedelta) -> list[Server]:
        return [
            Server(
                str(row["id"]),
                row["name"],
                tuple(
                    ConnectedWorker(
                        worker["worker_id"],
                        tuple(worker["topics"]),
                        worker["capacity"],
                        datetime.fromisoformat(worker["connected_at"]),
                    )
                    for worker in json.loads(row["workers"])
                ),
            )
            for row in await self._fetch("list_servers", silent_for)
        ]

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)
