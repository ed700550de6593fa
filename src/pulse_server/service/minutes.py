"""Activity by the minute, from the statistics of all servers. No job is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulse_server.clock import lease_clock
from pulse_server.domain.latencies import Latency, added_up, latency
from pulse_server.domain.overview import Counts, Minute
from pulse_server.repos.overview import OverviewRepo
from pulse_server.service.samples import Samples

# Cached spans, each of a topic and a length. A day of one topic takes 0.5 MB.
SPANS_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class MinuteReport:
    at: datetime
    counts: Counts
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive minutes, oldest first, and the latencies over all of them."""

    minutes: tuple[MinuteReport, ...]
    wait: Latency
    run: Latency


class Minutes:
    def __init__(self, repo: OverviewRepo, *, clock: Callable[[], float] = lease_clock) -> None:
        self._repo = repo
        self._samples = Samples(self._read, SPANS_REMEMBERED, clock)

    async def last(self, count: int, topic: str) -> Span:
        """Return the last minutes of the topic, or of ALL_TOPICS. The last one is the current one."""
        return await self._samples.get((topic, count))

    async def _read(self, question: tuple[str, int]) -> Span:
        topic, count = question
        minutes = await self._repo.topic_minutes(topic, count)
        # The percentiles of a day take 20 ms, in which the event loop must serve others.
        return await asyncio.to_thread(_span, minutes)


def _span(minutes: Sequence[Minute]) -> Span:
    return Span(
        tuple(
            MinuteReport(minute.at, minute.counts, latency(minute.wait), latency(minute.run))
            for minute in minutes
        ),
        latency(added_up(minute.wait for minute in minutes)),
        latency(added_up(minute.run for minute in minutes)),
    )
