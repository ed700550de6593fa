"""Sampling in the background: what is kept between samples, and how much of the database it takes."""

from contextlib import nullcontext as does_not_raise
from datetime import timedelta

import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import OTHER_TOPICS, Metrics
from pulse_server.views.vitals import DatabaseVitals, LongRuns, TopicVitals, Vitals
from tests.fakes.clock import Seconds

INTERVAL = timedelta(seconds=15)


class FakeQueries:
    def __init__(self, clock: Seconds) -> None:
        self._clock = clock
        self.topics: list[TopicVitals] = []
        self.slow: dict[str, LongRuns] = {}
        self.seconds_per_sample = 0.0
        self.is_away = False

    async def jobs_by_topic(self, most_topics: int) -> list[TopicVitals]:
        self._clock.advance(self.seconds_per_sample)
        if self.is_away:
            raise Unavailable("The database did not answer.")
        return self.topics

    async def count_running(self) -> int:
        return 7

    async def long_runs(self) -> dict[str, LongRuns]:
        return self.slow

    async def measure_database(self) -> DatabaseVitals:
        return DatabaseVitals(schedule_lag_seconds=2.5, dead_rows=3, jobs_bytes=4)


class Sampling:
    def __init__(self) -> None:
        self.clock = Seconds()
        self.repo = FakeQueries(self.clock)
        self.metrics = Metrics()
        self.vitals = Vitals(self.repo, self.metrics, interval=INTERVAL, clock=self.clock)
        self.rests: list[timedelta] = []
        self.vitals.loop.rest = self.rests.append  # type: ignore[method-assign]


@pytest.fixture
def sampling() -> Sampling:
    return Sampling()


async def test_gauges_have_the_sample(sampling: Sampling) -> None:
    sampling.repo.topics = [TopicVitals("mail", 5, 60.0, 8), TopicVitals("sms", 1, 2.0, 0)]
    sampling.repo.slow = {"mail": LongRuns(2, timedelta(minutes=9), timedelta(seconds=3))}

    await sampling.vitals.tick()

    metrics = sampling.metrics
    assert metrics.ready_jobs.read() == {("mail",): 5, ("sms",): 1}
    assert metrics.oldest_ready.read() == {("mail",): 60.0, ("sms",): 2.0}
    assert metrics.running_jobs.read() == {(): 7}
    assert metrics.dead_letters.read() == {("mail",): 8, ("sms",): 0}
    assert metrics.long_runs.read() == {("mail",): 2}
    assert metrics.schedule_lag.read() == {(): 2.5}
    assert metrics.dead_rows.read() == {(): 3}
    assert metrics.jobs_bytes.read() == {(): 4}


async def test_topic_that_was_emptied_goes_on_at_zero(sampling: Sampling) -> None:
    sampling.repo.topics = [TopicVitals("mail", 5, 60.0, 3)]
    sampling.repo.slow = {"mail": LongRuns(2, timedelta(minutes=9), timedelta(seconds=3))}
    await sampling.vitals.tick()
    sampling.repo.topics, sampling.repo.slow = [TopicVitals("sms", 1, 1.0, 0)], {}
    await sampling.vitals.tick()

    assert sampling.metrics.ready_jobs.read() == {("mail",): 0, ("sms",): 1}
    assert sampling.metrics.oldest_ready.read() == {("mail",): 0, ("sms",): 1.0}
    assert sampling.metrics.dead_letters.read() == {("mail",): 0, ("sms",): 0}
    assert sampling.metrics.long_runs.read() == {("mail",): 0}


async def test_topics_without_a_label_of_their_own_are_added_up(sampling: Sampling) -> None:
    sampling.metrics.count_topics(sampling.metrics.submitted, [f"topic-{number}" for number in range(1000)])
    sampling.repo.topics = [
        TopicVitals("late", 3, 9.0, 0),
        TopicVitals(None, 4, 10.0, 0),
        TopicVitals("topic-1", 1, 1.0, 0),
    ]

    await sampling.vitals.tick()

    assert sampling.metrics.ready_jobs.read() == {(OTHER_TOPICS,): 7, ("topic-1",): 1}
    assert sampling.metrics.oldest_ready.read() == {(OTHER_TOPICS,): 10.0, ("topic-1",): 1.0}


async def test_age_grows_from_the_last_whole_sample(sampling: Sampling) -> None:
    assert sampling.metrics.vitals_age.read() == {}, "there is none yet"
    await sampling.vitals.tick()
    sampling.clock.advance(12)

    assert sampling.metrics.vitals_age.read() == {(): 12}


async def test_numbers_stay_and_age_while_the_database_is_away(sampling: Sampling) -> None:
    sampling.repo.topics = [TopicVitals("mail", 5, 60.0, 0)]
    await sampling.vitals.tick()
    sampling.repo.is_away = True
    sampling.clock.advance(30)

    with pytest.raises(Unavailable):
        await sampling.vitals.tick()

    assert sampling.metrics.ready_jobs.read() == {("mail",): 5}
    assert sampling.metrics.vitals_age.read() == {(): 30}


@pytest.mark.parametrize("is_away", [False, True])
async def test_sample_rests_twenty_times_as_long_as_it_took_even_if_it_failed(
    sampling: Sampling, is_away: bool
) -> None:
    sampling.repo.seconds_per_sample = 3.0
    sampling.repo.is_away = is_away

    with pytest.raises(Unavailable) if is_away else does_not_raise():
        await sampling.vitals.tick()

    assert sampling.rests == [tuning.SAMPLE_REST * timedelta(seconds=3)]


def test_share_of_the_connection_is_five_percent() -> None:
    assert 1 / (1 + tuning.SAMPLE_REST) < 0.05
