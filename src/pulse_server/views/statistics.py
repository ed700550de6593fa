"""Topics with their depths, rates and latencies, and statistics by topic and minute.

There may be 100,000 topics. The counts are cached, and no turn of the event loop walks all topics.

Each server adds its counts to the database every few seconds, and `Minutes` reads them for all servers.
Counts and buckets come from the metrics, so no job is read and no job pays for them. The counts since the
last statement are lost when a server is killed; no job depends on them.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import sub
from typing import Any, NamedTuple

from pulse_server.base import bounds
from pulse_server.base.ids import decode_name, encode_name, fitting
from pulse_server.base.loops import Loop, in_turns, lease_clock
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
from pulse_server.base.sharing import Sample, Samples
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements

# The approximate size of a topic in an answer, without its name.
_TOPIC_BYTES = 250
# The size of a page without a limit: built and serialized in some 20 ms, which is one turn.
DEFAULT_TOPICS_PAGE = 4000
# Names to sort in one turn of the event loop, together with the names of the page: some 5 ms.
_SORTED_IN_A_TURN = 5000

_SQL = statements("views/statistics.sql")


@dataclass(frozen=True, slots=True)
class TopicDepth:
    """How many jobs of a topic wait, run, or need an operator."""

    topic: str
    ready: int = 0
    waiting: int = 0
    waiting_for_jobs: int = 0
    running: int = 0
    dead_lettered: int = 0
    canceled: int = 0
    oldest_ready_at: datetime | None = None
    """When the longest-waiting ready job became due."""


class Rates(NamedTuple):
    """Counts of a topic's jobs in some span of time."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_lettered: int = 0


class TopicRates(NamedTuple):
    last_minute: Rates = Rates()
    last_hour: Rates = Rates()
    lately: Rates = Rates()
    """Of the last five whole minutes and the current one."""


class TopicBuckets(NamedTuple):
    """How long a topic's jobs had been due when they were claimed, and claimed when they were reported."""

    wait: Buckets = NOTHING
    run: Buckets = NOTHING


class TopicLatencies(NamedTuple):
    wait: Latency = Latency()
    run: Latency = Latency()


@dataclass(frozen=True, slots=True)
class TopicsSample:
    depths: dict[str, TopicDepth]
    """By name, in order."""
    rates: dict[str, TopicRates]
    latencies: dict[str, TopicLatencies]
    counted_at: datetime
    names: list[str]
    busiest: list[str]
    """The first names, by ready and running jobs, most first."""
    depth: TopicDepth
    """The total of all topics."""
    rate: TopicRates


@dataclass(frozen=True, slots=True)
class TopicsPage:
    names: list[str]
    next_token: str
    total: int


class Topics:
    """Uses the connection of the vitals: a count over a deep queue must not delay a claim or an
    operator's list."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = lease_clock) -> None:
        self._database = database
        self._sample = Sample(self._count, clock, to_its_end=True)

    async def sample(self) -> TopicsSample:
        return await self._sample.get()

    async def topic_depths(self) -> list[TopicDepth]:
        """The topics that have jobs in any state but COMPLETED."""
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
        """What happened in the last whole minute and hour, and lately, by topic."""
        rates: dict[str, TopicRates] = {}
        for topic, recency, *counts in await self._fetch("topic_rates"):
            found, new = rates.get(topic, TopicRates()), Rates(*counts)
            rates[topic] = TopicRates(
                new if recency == 1 else found.last_minute,
                found.last_hour if recency == 0 else _added([found.last_hour, new]),
                found.lately if recency == 3 else _added([found.lately, new]),
            )
        return rates

    async def topic_buckets(self) -> dict[str, TopicBuckets]:
        """How long jobs waited and ran in the last whole hour, by topic."""
        waits: dict[str, dict[int, int]] = defaultdict(dict)
        runs: dict[str, dict[int, int]] = defaultdict(dict)
        for topic, is_wait, bucket, jobs in await self._fetch("topic_buckets"):
            (waits if is_wait else runs)[topic][bucket] = jobs
        return {topic: TopicBuckets(waits[topic], runs[topic]) for topic in waits.keys() | runs.keys()}

    async def _fetch(self, name: str) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name])

    async def _count(self) -> TopicsSample:
        counted = await self.topic_depths()
        rates = await self.topic_rates()
        buckets = await self.topic_buckets()
        depths: dict[str, TopicDepth] = {}
        names: list[str] = []
        busiest: list[TopicDepth] = []
        total = TopicDepth("")

        def business(depth: TopicDepth) -> tuple[int, ...]:
            done = rates[depth.topic].last_minute.completed if depth.topic in rates else 0
            return (depth.ready + depth.running, done, depth.dead_lettered, depth.waiting)

        async for some in in_turns(counted):
            names += [depth.topic for depth in some]
            depths.update((depth.topic, depth) for depth in some)
            busiest = heapq.nlargest(bounds.MAX_PAGE_SIZE, [*busiest, *some], key=business)
            total = _summed_up([total, *some])
        return TopicsSample(
            depths,
            rates,
            {topic: TopicLatencies(latency(wait), latency(run)) for topic, (wait, run) in buckets.items()},
            datetime.now(UTC),
            names,
            [depth.topic for depth in busiest],
            total,
            TopicRates(
                _added([rate.last_minute for rate in rates.values()]),
                _added([rate.last_hour for rate in rates.values()]),
            ),
        )


async def page_by_name(
    sample: TopicsSample, others: Collection[str], *, search: str, limit: int, token: str
) -> TopicsPage:
    """Return the topics that match, by name. `others` are topics without jobs."""
    after = decode_name(token) if token else ""
    most = limit or DEFAULT_TOPICS_PAGE
    names = await _matching(sample.names, search)
    without_jobs = 0
    found = list(_after(names, after, most + 1))
    # Unsorted, and perhaps 100,000: merge each slice into the page, and keep the first names.
    async for some in in_turns(list({*others, *sample.rates}), _SORTED_IN_A_TURN):
        more = [name for name in some if name not in sample.depths and search in name]
        without_jobs += len(more)
        found = sorted([*found, *(name for name in more if name > after)])[: most + 1]
    count = fitting(len(name) + _TOPIC_BYTES for name in found[:most]) if found else 0
    next_token = encode_name(found[count - 1]) if count < len(found) else ""
    return TopicsPage(found[:count], next_token, len(names) + without_jobs)


async def busiest_page(
    sample: TopicsSample, others: Collection[str], *, search: str, limit: int
) -> TopicsPage:
    """Return the busiest topics that match. There is no next page: others are found by name."""
    by_name = await page_by_name(sample, others, search=search, limit=bounds.MAX_PAGE_SIZE, token="")
    limit = limit or bounds.MAX_PAGE_SIZE
    found = dict.fromkeys(name for name in sample.busiest if search in name)
    found.update(dict.fromkeys(by_name.names))  # in case the busiest are too few
    return TopicsPage(list(found)[:limit], "", by_name.total)


async def _matching(names: list[str], search: str) -> list[str]:
    if not search:
        return names
    found: list[str] = []
    async for some in in_turns(names, 10_000):
        found += [name for name in some if search in name]
    return found


def _after(names: Sequence[str], name: str, count: int) -> Sequence[str]:
    begin = bisect_right(names, name)
    return names[begin : begin + count]


def _summed_up(depths: Sequence[TopicDepth]) -> TopicDepth:
    return TopicDepth(
        "",
        ready=sum(depth.ready for depth in depths),
        waiting=sum(depth.waiting for depth in depths),
        waiting_for_jobs=sum(depth.waiting_for_jobs for depth in depths),
        running=sum(depth.running for depth in depths),
        dead_lettered=sum(depth.dead_lettered for depth in depths),
        canceled=sum(depth.canceled for depth in depths),
        oldest_ready_at=min(
            (depth.oldest_ready_at for depth in depths if depth.oldest_ready_at), default=None
        ),
    )


def _added(rates: Sequence[Rates]) -> Rates:
    return Rates(*(sum(column) for column in zip(*rates, strict=True))) if rates else Rates()


# How often each server adds its counts to the statistics by the minute.
STATISTICS_INTERVAL = timedelta(seconds=5)
# Names the total of all topics in lists of topics; no topic has an empty name.
ALL_TOPICS = ""
# Cached spans, each of a topic and a length. A day of one topic takes 0.5 MB.
SPANS_REMEMBERED = 32
STATISTICS_KEPT = timedelta(days=7)
# Old minutes are deleted every ten minutes: once in this many rounds.
STATISTICS_CLEAN_UP_ROUNDS = 120


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
