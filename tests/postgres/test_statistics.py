"""Statistics by the minute: each event is counted at most once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import BOUNDS, Metrics
from pulse_server.views.statistics import (
    ALL_TOPICS,
    STATISTICS_CLEAN_UP_ROUNDS,
    STATISTICS_KEPT,
    Counts,
    Statistics,
    TopicActivity,
)
from tests.calls import Calls
from tests.postgres.glance import Glance

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def statistics(glance: Glance, metrics: Metrics) -> Statistics:
    return Statistics(glance.minutes, metrics, interval=SECOND)


@pytest.fixture
def adds(monkeypatch: pytest.MonkeyPatch, glance: Glance) -> Calls:
    return Calls(monkeypatch, glance.minutes, "add_topic_minutes")


async def recorded(glance: Glance) -> dict[str, TopicActivity]:
    """What is stored of the current minute."""
    found = {}
    for topic in await glance.topics_with_minutes():
        (minute,) = await glance.minutes.topic_minutes(topic, 1)
        found[topic] = TopicActivity(topic, minute.counts, minute.wait, minute.run)
    return found


async def test_counts_are_stored_by_topic(statistics: Statistics, glance: Glance, metrics: Metrics) -> None:
    metrics.submitted.add("mail", by=6)
    metrics.completed.add("mail", by=5)
    metrics.failed.add("mail", "error", by=2)
    metrics.failed.add("mail", "lease_expired", by=1)
    metrics.retried.add("mail", by=2)
    metrics.dead_lettered.add("mail", by=1)
    metrics.canceled.add("sms", by=4)

    await statistics.record()

    assert (await recorded(glance)) == {
        "mail": TopicActivity("mail", Counts(6, 5, 3, 2, 1, 0)),
        "sms": TopicActivity("sms", Counts(canceled=4)),
        ALL_TOPICS: TopicActivity(ALL_TOPICS, Counts(6, 5, 3, 2, 1, 4)),
    }


async def test_wait_and_run_times_are_stored_by_bucket(
    statistics: Statistics, glance: Glance, metrics: Metrics
) -> None:
    metrics.queue_wait.observe_in(("mail",), [0.0, BOUNDS[0], BOUNDS[1], 1e9])
    metrics.run_time.observe("mail", "completed", value=BOUNDS[7])
    metrics.run_time.observe("mail", "failed", value=BOUNDS[7])
    metrics.run_time.observe("sms", "completed", value=BOUNDS[8])

    await statistics.record()

    waits = {0: 2, 1: 1, len(BOUNDS): 1}
    assert (await recorded(glance)) == {
        "mail": TopicActivity("mail", wait=waits, run={7: 2}),
        "sms": TopicActivity("sms", run={8: 1}),
        ALL_TOPICS: TopicActivity(ALL_TOPICS, wait=waits, run={7: 2, 8: 1}),
    }


async def test_no_bucket_is_stored_twice(
    statistics: Statistics, glance: Glance, metrics: Metrics, adds: Calls
) -> None:
    metrics.queue_wait.observe_in(("mail",), [BOUNDS[3], BOUNDS[4]])
    await statistics.record()
    await statistics.record()
    metrics.queue_wait.observe("mail", value=BOUNDS[4])
    await statistics.record()

    assert (await recorded(glance))["mail"].wait == {3: 1, 4: 2}
    assert adds.count == 2


async def test_no_count_is_stored_twice(
    statistics: Statistics, glance: Glance, metrics: Metrics, adds: Calls
) -> None:
    metrics.submitted.add("mail", by=6)
    await statistics.record()
    await statistics.record()
    metrics.submitted.add("mail", by=1)
    await statistics.record()

    assert (await recorded(glance))["mail"].counts.submitted == 7
    assert adds.count == 2


async def test_what_was_sent_without_an_answer_is_not_sent_again(
    statistics: Statistics, glance: Glance, metrics: Metrics, adds: Calls
) -> None:
    metrics.submitted.add("mail", by=6)
    adds.is_away = True
    with pytest.raises(Unavailable):
        await statistics.record()
    adds.is_away = False
    metrics.submitted.add("mail", by=1)
    await statistics.record()

    assert (await recorded(glance))["mail"].counts.submitted == 1


async def test_two_servers_add_up(glance: Glance) -> None:
    for count in (2, 3):
        metrics = Metrics()
        metrics.submitted.add("mail", by=count)
        metrics.queue_wait.observe_in(("mail",), [BOUNDS[0]] * count)
        await Statistics(glance.minutes, metrics, interval=SECOND).record()

    assert (await recorded(glance))["mail"] == TopicActivity("mail", Counts(5), {0: 5})
    assert (await recorded(glance))[ALL_TOPICS] == TopicActivity(ALL_TOPICS, Counts(5), {0: 5})


async def test_old_minutes_are_cleaned_up_now_and_then(
    statistics: Statistics, glance: Glance, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets = Calls(monkeypatch, glance.minutes, "forget_topic_minutes")
    metrics.submitted.add("mail")
    for _ in range(STATISTICS_CLEAN_UP_ROUNDS + 2):
        await statistics.record()
    assert forgets.count == 2
    assert await glance.topics_with_minutes() == {"mail", ALL_TOPICS}

    await glance.elapse(STATISTICS_KEPT + MINUTE)
    for _ in range(STATISTICS_CLEAN_UP_ROUNDS + 2):
        await statistics.record()
    assert await glance.topics_with_minutes() == {ALL_TOPICS}  # the depth of the current minute
