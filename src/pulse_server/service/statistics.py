"""Statistics by topic and minute: each server adds its counts to the database every few seconds.

Counts and buckets come from the metrics, so no job pays for them. The counts since the last statement are
lost when a server is killed; no job depends on them.
"""

from __future__ import annotations

from datetime import timedelta
from operator import sub

from pulse_server.domain.latencies import NOTHING, Buckets, added_up
from pulse_server.domain.overview import ALL_TOPICS, Counts, TopicActivity
from pulse_server.loops import Loop
from pulse_server.repos.overview import OverviewRepo
from pulse_server.telemetry.instruments import Counter, Histogram, Labels
from pulse_server.telemetry.metrics import Metrics

STATISTICS_KEPT = timedelta(days=7)
# Old minutes are deleted every ten minutes: once in this many rounds.
STATISTICS_CLEAN_UP_ROUNDS = 120

_NONE = Counts()


class Statistics:
    def __init__(self, repo: OverviewRepo, metrics: Metrics, *, interval: timedelta) -> None:
        self._repo = repo
        self._metrics = metrics
        self._recorded: dict[str, Counts] = {}
        self._waits = _Spreads(metrics.queue_wait)
        self._runs = _Spreads(metrics.run_time)
        self._until_clean_up = 0
        self.loop = Loop("statistics", self.record, interval)

    async def record(self) -> None:
        """Store the counts since the last call, and now and then delete old minutes."""
        await self.record_news()
        self._until_clean_up -= 1
        if self._until_clean_up < 0:
            await self._repo.forget_topic_minutes(STATISTICS_KEPT)
            self._until_clean_up = STATISTICS_CLEAN_UP_ROUNDS

    async def record_news(self) -> None:
        """Store the counts since the last call, for each topic and for all topics together."""
        # Marked as recorded first: a statement without an answer may have counted, and counting
        # twice is worse than not at all.
        news = self._news()
        if news:
            await self._repo.add_topic_minutes([_together(news), *news])

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
