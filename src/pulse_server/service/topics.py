"""The topics at a glance, counted no more often than the database can bear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server import tuning
from pulse_server.clock import awake_or_not
from pulse_server.domain.overview import TopicDepth, TopicRates
from pulse_server.repos.overview import OverviewRepo


@dataclass(frozen=True, slots=True)
class TopicsSample:
    depths: dict[str, TopicDepth]
    rates: dict[str, TopicRates]
    counted_at: datetime


class Topics:
    """One count serves everyone who asks at about the same time: a screen that ten people refresh costs what
    one does. A count that takes long is not repeated for twenty times as long."""

    def __init__(self, repo: OverviewRepo, *, clock: Callable[[], float] = awake_or_not) -> None:
        self._repo = repo
        self._clock = clock
        self._sample: TopicsSample | None = None
        self._good_until = 0.0
        self._turn = asyncio.Lock()

    async def sample(self) -> TopicsSample:
        async with self._turn:
            if self._sample is None or self._clock() >= self._good_until:
                began = self._clock()
                depths = await self._repo.topic_depths()
                rates = await self._repo.topic_rates()
                self._sample = TopicsSample(
                    {depth.topic: depth for depth in depths}, rates, datetime.now(UTC)
                )
                took = self._clock() - began
                shortest = tuning.TOPICS_SAMPLE_AGE.total_seconds()
                self._good_until = self._clock() + max(shortest, took * tuning.SAMPLE_REST)
            return self._sample
