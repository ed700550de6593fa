"""Pages of hundreds of thousands of topics, built without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

import pytest

from pulse_server.views.statistics import (
    DEFAULT_TOPICS_PAGE,
    TopicDepth,
    TopicRates,
    TopicsPage,
    TopicsSample,
    page_by_name,
)

MANY = 100_000


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    counted = Turns()
    yield counted
    counted.stop()


def a_sample(*names: str) -> TopicsSample:
    depths = {name: TopicDepth(name, ready=1) for name in sorted(names)}
    return TopicsSample(depths, {}, {}, datetime.now(UTC), list(depths), [], TopicDepth(""), TopicRates())


async def all_pages(sample: TopicsSample, others: Collection[str], limit: int) -> list[TopicsPage]:
    pages = [await page_by_name(sample, others, search="", limit=limit, token="")]
    while token := pages[-1].next_token:
        pages.append(await page_by_name(sample, others, search="", limit=limit, token=token))
    return pages


async def test_topics_of_workers_without_jobs_are_sorted_in_many_turns(turns: Turns) -> None:
    others = {f"topic-{number:06}" for number in range(MANY)}
    before = turns.count

    page = await page_by_name(a_sample("topic-000000x"), others, search="", limit=3, token="")

    assert turns.count - before >= 10
    assert page.names == ["topic-000000", "topic-000000x", "topic-000001"]
    assert page.total == MANY + 1


async def test_page_of_no_size_has_as_many_topics_as_one_turn_can_send() -> None:
    sample = a_sample(*[f"topic-{number:06}" for number in range(MANY // 10)])

    pages = await all_pages(sample, (), limit=0)

    assert [len(page.names) for page in pages] == [DEFAULT_TOPICS_PAGE, DEFAULT_TOPICS_PAGE, 2000]


async def test_topics_with_and_without_jobs_are_in_order_over_all_pages() -> None:
    with_jobs = [f"topic-{number:05}" for number in range(0, 20_000, 3)]
    without = [f"topic-{number:05}" for number in range(0, 20_000, 2)]

    pages = await all_pages(a_sample(*with_jobs), without, limit=1000)

    assert [name for page in pages for name in page.names] == sorted({*with_jobs, *without})
    assert {page.total for page in pages} == {len({*with_jobs, *without})}
