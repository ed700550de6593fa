"""Activity by the minute: concurrent callers share one query."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pulse_server.domain.errors import Unavailable
from pulse_server.domain.latencies import Latency, latency
from pulse_server.domain.overview import ALL_TOPICS, Counts, TopicActivity
from pulse_server.service.minutes import Minutes
from pulse_server.service.samples import TOPICS_SAMPLE_AGE
from tests.fakes.clock import Seconds
from tests.fakes.jobs import InMemoryJobRepo
from tests.fakes.overview import InMemoryOverviewRepo

MINUTE = timedelta(minutes=1)


@pytest.fixture
def store() -> InMemoryJobRepo:
    return InMemoryJobRepo()


@pytest.fixture
def repo(store: InMemoryJobRepo) -> InMemoryOverviewRepo:
    return InMemoryOverviewRepo(store)


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def minutes(repo: InMemoryOverviewRepo, clock: Seconds) -> Minutes:
    return Minutes(repo, clock=clock)


async def test_span_has_each_minute_and_their_sum(
    store: InMemoryJobRepo, repo: InMemoryOverviewRepo, minutes: Minutes
) -> None:
    await repo.add_topic_minutes([TopicActivity("mail", Counts(submitted=3), {40: 3}, {50: 1})])
    store.clock.advance(2 * MINUTE)
    await repo.add_topic_minutes([TopicActivity("mail", Counts(failed=1), {60: 1}, {50: 1})])

    span = await minutes.last(3, "mail")

    assert [minute.counts for minute in span.minutes] == [Counts(3), Counts(), Counts(failed=1)]
    assert [minute.wait for minute in span.minutes] == [latency({40: 3}), Latency(), latency({60: 1})]
    assert (span.wait, span.run) == (latency({40: 3, 60: 1}), latency({50: 2}))


async def test_one_answer_serves_everyone_who_asks_the_same(
    repo: InMemoryOverviewRepo, minutes: Minutes
) -> None:
    spans = await asyncio.gather(*[minutes.last(60, ALL_TOPICS) for _ in range(10)])

    assert repo.calls["topic_minutes"] == 1
    assert all(span is spans[0] for span in spans)


async def test_other_question_has_an_answer_of_its_own(repo: InMemoryOverviewRepo, minutes: Minutes) -> None:
    for topic, count in (("mail", 60), ("sms", 60), ("mail", 30), ("mail", 60)):
        assert len((await minutes.last(count, topic)).minutes) == count

    assert repo.calls["topic_minutes"] == 3


async def test_answer_that_is_old_is_read_again(
    repo: InMemoryOverviewRepo, minutes: Minutes, clock: Seconds
) -> None:
    await minutes.last(60, "mail")
    clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    await minutes.last(60, "mail")

    assert repo.calls["topic_minutes"] == 2


async def test_least_recently_asked_question_is_evicted_first(
    repo: InMemoryOverviewRepo, clock: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.service.minutes.SPANS_REMEMBERED", 2)
    minutes = Minutes(repo, clock=clock)
    for topic in ("often", "once", "often", "new", "often"):
        await minutes.last(60, topic)
    assert repo.calls["topic_minutes"] == 3

    await minutes.last(60, "once")
    assert repo.calls["topic_minutes"] == 4


async def test_question_that_failed_is_asked_again(store: InMemoryJobRepo, minutes: Minutes) -> None:
    store.is_away = True
    with pytest.raises(Unavailable):
        await minutes.last(1, "mail")
    store.is_away = False

    assert (await minutes.last(1, "mail")).wait == Latency()
