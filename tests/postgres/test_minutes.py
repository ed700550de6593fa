"""Activity by the minute: concurrent callers share one query."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import Latency, latency
from pulse_server.base.sharing import TOPICS_SAMPLE_AGE
from pulse_server.views.statistics import ALL_TOPICS, Counts, Minutes, TopicActivity
from tests.calls import Calls
from tests.postgres.glance import Glance

MINUTE = timedelta(minutes=1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, glance: Glance) -> Calls:
    return Calls(monkeypatch, glance.minutes, "topic_minutes")


async def test_span_has_each_minute_and_their_sum(glance: Glance) -> None:
    await glance.minutes.add_topic_minutes([TopicActivity("mail", Counts(submitted=3), {40: 3}, {50: 1})])
    await glance.elapse(2 * MINUTE)
    await glance.minutes.add_topic_minutes([TopicActivity("mail", Counts(failed=1), {60: 1}, {50: 1})])

    span = await glance.minutes.last(3, "mail")

    assert [minute.counts for minute in span.minutes] == [Counts(3), Counts(), Counts(failed=1)]
    assert [minute.wait for minute in span.minutes] == [latency({40: 3}), Latency(), latency({60: 1})]
    assert (span.wait, span.run) == (latency({40: 3, 60: 1}), latency({50: 2}))


async def test_one_answer_serves_everyone_who_asks_the_same(reads: Calls, glance: Glance) -> None:
    spans = await asyncio.gather(*[glance.minutes.last(60, ALL_TOPICS) for _ in range(10)])

    assert reads.count == 1
    assert all(span is spans[0] for span in spans)


async def test_other_question_has_an_answer_of_its_own(reads: Calls, glance: Glance) -> None:
    for topic, count in (("mail", 60), ("sms", 60), ("mail", 30), ("mail", 60)):
        assert len((await glance.minutes.last(count, topic)).minutes) == count

    assert reads.count == 3


async def test_answer_that_is_old_is_read_again(reads: Calls, glance: Glance) -> None:
    await glance.minutes.last(60, "mail")
    glance.clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    await glance.minutes.last(60, "mail")

    assert reads.count == 2


async def test_least_recently_asked_question_is_evicted_first(
    glance: Glance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.views.statistics.SPANS_REMEMBERED", 2)
    minutes = Minutes(glance.database, clock=glance.clock)
    reads = Calls(monkeypatch, minutes, "topic_minutes")
    for topic in ("often", "once", "often", "new", "often"):
        await minutes.last(60, topic)
    assert reads.count == 3

    await minutes.last(60, "once")
    assert reads.count == 4


async def test_question_that_failed_is_asked_again(reads: Calls, glance: Glance) -> None:
    reads.is_away = True
    with pytest.raises(Unavailable):
        await glance.minutes.last(1, "mail")
    reads.is_away = False

    assert (await glance.minutes.last(1, "mail")).wait == Latency()
