"""Statistics by the minute: each thing that happened is told once, or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server import tuning
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.overview import TopicActivity
from pulse_server.service.statistics import Statistics
from pulse_server.telemetry.metrics import Metrics
from tests.fakes.jobs import InMemoryJobRepo
from tests.fakes.overview import InMemoryOverviewRepo

SECOND = timedelta(seconds=1)


@pytest.fixture
def store() -> InMemoryJobRepo:
    return InMemoryJobRepo()


@pytest.fixture
def repo(store: InMemoryJobRepo) -> InMemoryOverviewRepo:
    return InMemoryOverviewRepo(store)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def statistics(repo: InMemoryOverviewRepo, metrics: Metrics) -> Statistics:
    return Statistics(repo, metrics, interval=SECOND)


def told(repo: InMemoryOverviewRepo) -> dict[str, TopicActivity]:
    return {topic: counted for (_, topic), counted in repo.minutes.items()}


async def test_what_was_counted_is_told_under_its_topic(
    statistics: Statistics, repo: InMemoryOverviewRepo, metrics: Metrics
) -> None:
    metrics.submitted.add("mail", by=6)
    metrics.completed.add("mail", by=5)
    metrics.failed.add("mail", "error", by=2)
    metrics.failed.add("mail", "lease_expired", by=1)
    metrics.retried.add("mail", by=2)
    metrics.dead_lettered.add("mail", by=1)
    metrics.canceled.add("sms", by=4)

    await statistics.tell()

    assert told(repo) == {
        "mail": TopicActivity("mail", 6, 5, 3, 2, 1, 0),
        "sms": TopicActivity("sms", 0, 0, 0, 0, 0, 4),
    }


async def test_nothing_is_told_twice(
    statistics: Statistics, repo: InMemoryOverviewRepo, metrics: Metrics
) -> None:
    metrics.submitted.add("mail", by=6)
    await statistics.tell()
    await statistics.tell()
    metrics.submitted.add("mail", by=1)
    await statistics.tell()

    assert told(repo)["mail"].submitted == 7
    assert repo.calls["add_topic_minutes"] == 2


async def test_what_was_sent_without_an_answer_is_not_sent_again(
    statistics: Statistics, repo: InMemoryOverviewRepo, metrics: Metrics, store: InMemoryJobRepo
) -> None:
    metrics.submitted.add("mail", by=6)
    store.is_away = True
    with pytest.raises(Unavailable):
        await statistics.tell()
    store.is_away = False
    metrics.submitted.add("mail", by=1)
    await statistics.tell()

    assert told(repo)["mail"].submitted == 1


async def test_two_servers_add_up(repo: InMemoryOverviewRepo) -> None:
    for count in (2, 3):
        metrics = Metrics()
        metrics.submitted.add("mail", by=count)
        await Statistics(repo, metrics, interval=SECOND).tell()

    assert told(repo)["mail"].submitted == 5


async def test_old_minutes_are_cleaned_up_now_and_then(
    statistics: Statistics, repo: InMemoryOverviewRepo, metrics: Metrics, store: InMemoryJobRepo
) -> None:
    metrics.submitted.add("mail")
    for _ in range(tuning.STATISTICS_CLEAN_UP_ROUNDS + 2):
        await statistics.tell()
    assert repo.calls["forget_topic_minutes"] == 2
    assert told(repo)

    store.clock.advance(tuning.STATISTICS_KEPT + SECOND)
    for _ in range(tuning.STATISTICS_CLEAN_UP_ROUNDS + 2):
        await statistics.tell()
    assert not told(repo)
