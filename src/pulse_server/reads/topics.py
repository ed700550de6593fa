"""Topics with their depths, rates and latencies, page by page.

There may be 100,000 topics. The counts are cached, and no turn of the event loop walks all topics.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pulse_server.base import bounds
from pulse_server.base.ids import decode_name, encode_name, fitting
from pulse_server.base.loops import in_turns, lease_clock
from pulse_server.base.metrics import NOTHING, Buckets, Latency, latency
from pulse_server.base.sharing import Sample
from pulse_server.database.connections import Database
from pulse_server.database.statements import Rows, statements

# The approximate size of a topic in an answer, without its name.
_TOPIC_BYTES = 250
# The size of a page without a limit: built and serialized in some 20 ms, which is one turn.
DEFAULT_TOPICS_PAGE = 4000
# Names to sort in one turn of the event loop, together with the names of the page: some 5 ms.
_SORTED_IN_A_TURN = 5000

_SQL = statements("overview.sql")


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
