"""Topics with their depths, rates and latencies, page by page.

There may be 100,000 topics. The counts are cached, and no turn of the event loop walks all topics.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server.clock import lease_clock
from pulse_server.domain import limits
from pulse_server.domain.latencies import latency
from pulse_server.domain.overview import Rates, TopicDepth, TopicLatencies, TopicRates
from pulse_server.repos.overview import OverviewRepo
from pulse_server.service.paging import decode_name, encode_name, fitting
from pulse_server.service.samples import Sample
from pulse_server.turns import in_turns

# The approximate size of a topic in an answer, without its name.
_TOPIC_BYTES = 250
# The size of a page without a limit: built and serialized in some 20 ms, which is one turn.
DEFAULT_TOPICS_PAGE = 4000
# Names to sort in one turn of the event loop, together with the names of the page: some 5 ms.
_SORTED_IN_A_TURN = 5000


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
    def __init__(self, repo: OverviewRepo, *, clock: Callable[[], float] = lease_clock) -> None:
        self._repo = repo
        self._sample = Sample(self._count, clock, to_its_end=True)

    async def sample(self) -> TopicsSample:
        return await self._sample.get()

    async def _count(self) -> TopicsSample:
        counted = await self._repo.topic_depths()
        rates = await self._repo.topic_rates()
        buckets = await self._repo.topic_buckets()
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
            busiest = heapq.nlargest(limits.MAX_PAGE_SIZE, [*busiest, *some], key=business)
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
    by_name = await page_by_name(sample, others, search=search, limit=limits.MAX_PAGE_SIZE, token="")
    limit = limit or limits.MAX_PAGE_SIZE
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
        running=sum(depth.running for depth in depths),
        dead_lettered=sum(depth.dead_lettered for depth in depths),
        canceled=sum(depth.canceled for depth in depths),
        oldest_ready_at=min(
            (depth.oldest_ready_at for depth in depths if depth.oldest_ready_at), default=None
        ),
    )


def _added(rates: Sequence[Rates]) -> Rates:
    return Rates(*(sum(column) for column in zip(*rates, strict=True))) if rates else Rates()
