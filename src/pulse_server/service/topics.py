"""The topics at a glance, counted no more often than the database can bear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server.clock import awake_or_not
from pulse_server.domain.latencies import latency
from pulse_server.domain.overview import TopicDepth, TopicLatencies, TopicRates
from pulse_server.repos.overview import OverviewRepo
from pulse_server.service.samples import Sample


@dataclass(frozen=True, slots=True)
class TopicsSample:
    depths: dict[str, TopicDepth]
    rates: dict[str, TopicRates]
    latencies: dict[str, TopicLatencies]
    counted_at: datetime


class Topics:
    def __init__(self, repo: OverviewRepo, *, clock: Callable[[], float] = awake_or_not) -> None:
        self._repo = repo
        self._sample = Sample(self._count, clock)

    async def sample(self) -> TopicsSample:
        return await self._sample.get()

    async def _count(self) -> TopicsSample:
        depths = await self._repo.topic_depths()
        rates = await self._repo.topic_rates()
        buckets = await self._repo.topic_buckets()
        return TopicsSample(
            {depth.topic: depth for depth in depths},
            rates,
            {topic: TopicLatencies(latency(wait), latency(run)) for topic, (wait, run) in buckets.items()},
            datetime.now(UTC),
        )
