"""The port to the overview: topics, statistics, servers and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from pulse_server.domain.overview import (
    ConnectedWorker,
    Holding,
    Minute,
    Server,
    Sparing,
    TopicActivity,
    TopicBuckets,
    TopicDepth,
    TopicRates,
)


class OverviewRepo(Protocol):
    async def topic_depths(self) -> list[TopicDepth]:
        """The topics that have jobs in any state but COMPLETED."""
        ...

    async def topic_rates(self) -> dict[str, TopicRates]:
        """What happened in the last whole minute and hour, by topic."""
        ...

    async def topic_buckets(self) -> dict[str, TopicBuckets]:
        """How long jobs waited and ran in the last whole hour, by topic."""
        ...

    async def topic_minutes(self, topic: str, count: int) -> list[Minute]:
        """The last `count` minutes of the topic, oldest first, up to the current one. A minute
        without activity is empty."""
        ...

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        """Add to the statistics of the current minute."""
        ...

    async def forget_topic_minutes(self, older_than: timedelta) -> None: ...

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        """The jobs that each worker holds, by worker."""
        ...

    async def record_server(
        self,
        server_id: str,
        name: str,
        workers: Sequence[ConnectedWorker],
        sparing: Sparing | None = None,
    ) -> None:
        """Record that this server is alive with these workers. They are spared if it falls
        silent."""
        ...

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        """Remove this server, and servers that were silent for `silent_for`."""
        ...

    async def list_servers(self, silent_for: timedelta) -> list[Server]:
        """The servers that were seen within `silent_for`."""
        ...
