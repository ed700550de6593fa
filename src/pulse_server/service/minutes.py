"""What happened minute by minute, off the statistics that every server adds to. No job is looked at."""

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

# So many questions about minutes, each for a topic and a length, have an answer that is kept; a day of one
# topic takes 0.5 MB.
SPANS_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class MinuteReport:
    at: datetime
    counts: Counts
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Span:
    """Minutes in a row, oldest first, and how long jobs waited and ran in all of them."""

    minutes: tuple[MinuteReport, ...]
    wait: Latency
    run: Latency


class Minutes:
    def __init__(self, repo: OverviewRepo, *, clock: Callable[[], float] = lease_clock) -> None:
        self._repo = repo
        self._samples = Samples(self._read, SPANS_REMEMBERED, clock)

    async def last(self, count: int, topic: str) -> Span:
        """The last minutes of the topic, or of ALL_TOPICS; the current one is the last and not over yet."""
        return await self._samples.get((topic, count))

    async def _read(self, question: tuple[str, int]) -> Span:
        topic, count = question
        minutes = await self._repo.topic_minutes(topic, count)
        # A day's percentiles take 20 ms, which no job should wait for.
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
