"""Statistics by topic and minute: each server adds its counts to the database every few seconds.

`Minutes` reads them for all servers. No job is read.

Counts and buckets come from the metrics, so no job pays for them. The counts since the last statement are
lost when a server is killed; no job depends on them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import sub
from typing import NamedTuple

from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.metrics import (
    MOST_TOPICS,
    NOTHING,
    Buckets,
    Counter,
    Histogram,
    Labels,
    Latency,
    Metrics,
    added_up,
    latency,
)
from pulse_server.base.sharing import Samples
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements

# How often each server adds its counts to the statistics by the minute.
STATISTICS_INTERVAL = timedelta(seconds=5)
# Names the total of all topics in lists of topics; no topic has an empty name.
ALL_TOPICS = ""
# Cached spans, each of a topic and a length. A day of one topic takes 0.5 MB.
SPANS_REMEMBERED = 32
STATISTICS_KEPT = timedelta(days=7)
# Old minutes are deleted every ten minutes: once in this many rounds.
STATISTICS_CLEAN_UP_ROUNDS = 120

_SQL = statements("overview.sql")


class Counts(NamedTuple):
    """Everything that is counted by the minute."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    canceled: int = 0


class TopicActivity(NamedTuple):
    """The activity of one server for a topic since its last report."""

    topic: str
    counts: Counts = Counts()
    wait: Buckets = NOTHING
    run: Buckets = NOTHING


class Depth(NamedTuple):
    """How many jobs of a topic were ready and running, and for how long the oldest had been due."""

    ready: int = 0
    running: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MinuteReport:
    """The activity of all servers in one minute."""

    at: datetime
    counts: Counts
    wait: Latency
    run: Latency
    depth: Depth | None = None
    """None: not sampled."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive minutes, oldest first, and the latencies over all of them."""

    minutes: tuple[MinuteReport, ...]
    wait: Latency
    run: Latency


class Minute(NamedTuple):
    """A minute as it is stored."""

    at: datetime
    counts: Counts = Counts()
    wait: Buckets = NOTHING
    run: Buckets = NOTHING
    depth: Depth | None = None


class Minutes:
    def __init__(self, database: Database, *, clock: Callable[[], float] = lease_clock) -> None:
        self._database = database
        self._samples = Samples(self._read, SPANS_REMEMBERED, clock)

    async def last(self, count: int, topic: str) -> Span:
        """Return the last minutes of the topic, or of ALL_TOPICS. The last one is the current one.

        Cached: concurrent callers share one query.
        """
        return await self._samples.get((topic, count))

    async def _read(self, question: tuple[str, int]) -> Span:
        minutes = await self.topic_minutes(*question)
        # The percentiles of a day take 20 ms, in which the event loop must serve others.
        return await asyncio.to_thread(_span, minutes)

    async def topic_minutes(self, topic: str, count: int) -> list[Minute]:
        """The last `count` minutes of the topic, oldest first, up to the current one. A minute
        without activity is empty."""
        rows = await self._fetch("topic_minutes", topic, count)
        # Parsing a day of minutes takes 20 ms, which would delay jobs.
        return await asyncio.to_thread(_minutes, rows)

    async def add_topic_minutes(self, activity: Sequence[TopicActivity]) -> None:
        """Add to the statistics of the current minute."""
        counts = zip(*(entry.counts for entry in activity), strict=True)
        await self._fetch(
            "add_topic_minutes",
            [entry.topic for entry in activity],
            *(list(column) for column in counts),
            [json.dumps(dict(entry.wait)) for entry in activity],
            [json.dumps(dict(entry.run)) for entry in activity],
        )

    async def record_depths(self, most_topics: int) -> None:
        """Sample the depth of the deepest topics, unless another server did in this minute."""
        await self._fetch("record_depths", most_topics)

    async def forget_topic_minutes(self, older_than: timedelta) -> None:
        await self._fetch("forget_topic_minutes", older_than)

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)


_NONE = Counts()


class Statistics:
    def __init__(self, minutes: Minutes, metrics: Metrics, *, interval: timedelta) -> None:
        self._minutes = minutes
        self._metrics = metrics
        self._recorded: dict[str, Counts] = {}
        self._waits = _Spreads(metrics.queue_wait)
        self._runs = _Spreads(metrics.run_time)
        self._until_clean_up = 0
        self.loop = Loop("statistics", self.record, interval)

    async def record(self) -> None:
        """Store the counts since the last call and the depth, and now and then delete old minutes."""
        await self.record_news()
        await self._minutes.record_depths(MOST_TOPICS)
        self._until_clean_up -= 1
        if self._until_clean_up < 0:
            await self._minutes.forget_topic_minutes(STATISTICS_KEPT)
            self._until_clean_up = STATISTICS_CLEAN_UP_ROUNDS

    async def record_news(self) -> None:
        """Store the counts since the last call, for each topic and for all topics together."""
        # Marked as recorded first: a statement without an answer may have counted, and counting
        # twice is worse than not at all.
        news = self._news()
        if news:
            await self._minutes.add_topic_minutes([_together(news), *news])

    def _news(self) -> list[TopicActivity]:
        counted, before = self._counted(), self._recorded
        self._recorded = counted
        counts = {
            topic: Counts(*(new - old for new, old in zip(now, before.get(topic, _NONE), strict=True)))
            for topic, now in counted.items()
            if now != before.get(topic)
        }
        waits, runs = self._waits.news(), self._runs.news()
        return [
            TopicActivity(
                topic, counts.get(topic, _NONE), waits.get(topic, NOTHING), runs.get(topic, NOTHING)
            )
            for topic in counts.keys() | waits.keys() | runs.keys()
        ]

    def _counted(self) -> dict[str, Counts]:
        metrics = self._metrics
        columns = [
            _by_topic(counter)
            for counter in (
                metrics.submitted,
                metrics.completed,
                metrics.failed,
                metrics.retried,
                metrics.dead_lettered,
                metrics.canceled,
            )
        ]
        topics = set().union(*columns)
        return {topic: Counts(*(column.get(topic, 0) for column in columns)) for topic in topics}


class _Spreads:
    """A histogram by topic, and its counts at the last call of `news`."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._recorded: dict[Labels, list[int]] = {}

    def news(self) -> dict[str, Buckets]:
        """Return the new counts by topic and bucket, summed over the other labels of the histogram."""
        news: dict[str, Buckets] = {}
        for labels, spread in self._histogram.values.items():
            before = self._recorded.get(labels) or [0] * len(spread.counts)
            if spread.counts == before:
                continue
            now = self._recorded[labels] = list(spread.counts)
            since = {bucket: more for bucket, more in enumerate(map(sub, now, before)) if more}
            topic = labels[0]
            news[topic] = added_up([news[topic], since]) if topic in news else since
        return news


def _by_topic(counter: Counter) -> dict[str, int]:
    """Return the values by topic, which is the first label, summed over the other labels."""
    counted: dict[str, int] = {}
    for (topic, *_), value in counter.values.items():
        counted[topic] = counted.get(topic, 0) + int(value)
    return counted


def _together(news: list[TopicActivity]) -> TopicActivity:
    return TopicActivity(
        ALL_TOPICS,
        Counts(*(sum(column) for column in zip(*(entry.counts for entry in news), strict=True))),
        added_up(entry.wait for entry in news),
        added_up(entry.run for entry in news),
    )


def _span(minutes: Sequence[Minute]) -> Span:
    return Span(
        tuple(
            MinuteReport(minute.at, minute.counts, latency(minute.wait), latency(minute.run), minute.depth)
            for minute in minutes
        ),
        latency(added_up(minute.wait for minute in minutes)),
        latency(added_up(minute.run for minute in minutes)),
    )


def _minutes(rows: Rows) -> list[Minute]:
    return [
        Minute(
            at,
            Counts(*counts) if has_news else Counts(),
            _buckets_from_json(wait) if has_news else NOTHING,
            _buckets_from_json(run) if has_news else NOTHING,
            # A sampled minute without a depth of this topic: it had no such jobs.
            Depth(ready or 0, running or 0, oldest or 0.0) if is_sampled else None,
        )
        for at, has_news, *counts, wait, run, is_sampled, ready, running, oldest in rows
    ]


def _buckets_from_json(text: str) -> Buckets:
    return {int(bucket): jobs for bucket, jobs in json.loads(text).items()}
