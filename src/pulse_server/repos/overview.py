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
        """The last so many minutes of the topic, oldest first, the current one last. Where nothing happened
        they are empty."""
        ...

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        """Add to the statistics of the current minute."""
        ...

    async def forget_topic_minutes(self, older_than: timedelta) -> None: ...

    async def held_jobs(self, per_worker: int) -> dict[str, Holding]:
        """What each worker holds, by worker."""
        ...

    async def record_server(
        self,
        server_id: str,
        name: str,
        workers: Sequence[ConnectedWorker],
        sparing: Sparing | None = None,
    ) -> None:
        """This server is alive, with these workers, which are to be spared if it falls silent."""
        ...

    async def forget_servers(self, server_id: str, silent_for: timedelta) -> None:
        """Remove this server, and those that were silent for so long."""
        ...

    async def list_servers(self, silent_for: timedelta) -> list[Server]:
        """The servers that were heard of within that time."""
        ...
