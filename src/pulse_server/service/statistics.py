"""Keeps statistics by topic and minute: what this server counted, added up in the database every few seconds.

The counts come from the metrics, so no job pays for them. What a server did since it last told is lost when
it is killed: these are statistics, and the jobs themselves are not among them.
"""

from __future__ import annotations

from datetime import timedelta

from pulse_server import tuning
from pulse_server.domain.overview import TopicActivity
from pulse_server.loops import Loop
from pulse_server.repos.overview import OverviewRepo
from pulse_server.telemetry.instruments import Counter
from pulse_server.telemetry.metrics import Metrics


class Statistics:
    def __init__(self, repo: OverviewRepo, metrics: Metrics, *, interval: timedelta) -> None:
        self._repo = repo
        self._metrics = metrics
        self._told: dict[str, TopicActivity] = {}
        self._until_clean_up = 0
        self.loop = Loop("statistics", self.tell, interval)

    async def tell(self) -> None:
        """Add what was counted since the last time."""
        counted = self._counted()
        news = [
            since
            for topic, now in counted.items()
            if any((since := _difference(now, self._told.get(topic)))[1:])
        ]
        # Marked as told first: what was sent without an answer may have been counted, and twice is worse than
        # not at all.
        self._told = counted
        if news:
            await self._repo.add_topic_minutes(news)
        self._until_clean_up -= 1
        if self._until_clean_up < 0:
            await self._repo.forget_topic_minutes(tuning.STATISTICS_KEPT)
            self._until_clean_up = tuning.STATISTICS_CLEAN_UP_ROUNDS

    def _counted(self) -> dict[str, TopicActivity]:
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
        return {
            topic: TopicActivity(topic, *(column.get(topic, 0) for column in columns)) for topic in topics
        }


def _by_topic(counter: Counter) -> dict[str, int]:
    """The counter's values, summed over whatever else it is labelled with. The topic is its first label."""
    counted: dict[str, int] = {}
    for (topic, *_), value in counter.values.items():
        counted[topic] = counted.get(topic, 0) + int(value)
    return counted


def _difference(now: TopicActivity, before: TopicActivity | None) -> TopicActivity:
    if before is None:
        return now
    return TopicActivity(now.topic, *(new - old for new, old in zip(now[1:], before[1:], strict=True)))
