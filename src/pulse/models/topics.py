"""Topics at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.statistics import Latency, latency
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened to a topic's jobs in some span of time."""

    submitted: int
    completed: int
    failed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic at a glance. Completed jobs are not counted, only how many there were lately."""

    topic: str
    ready: int
    """May be claimed now."""
    waiting: int
    """Delayed, or between two attempts."""
    running: int
    dead_lettered: int
    canceled: int
    oldest_ready_at: datetime | None
    """Since when the longest waiting of the ready ones is due."""
    last_minute: Rates
    last_hour: Rates
    paused: bool
    workers: int
    """Connected, and asking for this topic."""
    wait: Latency
    """From due to claimed, in the last whole hour."""
    run: Latency
    """From claimed to reported, in the last whole hour."""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Some of the topics, and where the next ones begin."""

    topics: tuple[TopicInfo, ...]
    next_cursor: str | None
    """Give it to `list_topics` for the next page. None: there is none."""
    total: int
    """How many topics match, on all pages."""
    sum: TopicInfo
    """All topics that there are, together: without a name, workers and latencies."""

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)


def topic_page(response: pb.ListTopicsResponse) -> TopicPage:
    """Read a page of topics off the wire."""
    topics = tuple(topic_info(view) for view in response.topics)
    return TopicPage(topics, response.next_page_token or None, response.total, topic_info(response.sum))


def topic_info(view: pb.TopicView) -> TopicInfo:
    """Read a topic off the wire."""
    return TopicInfo(
        topic=view.topic,
        ready=view.ready,
        waiting=view.waiting,
        running=view.running,
        dead_lettered=view.dead_lettered,
        canceled=view.canceled,
        oldest_ready_at=time_of(view, "oldest_ready_at"),
        last_minute=_rates(view.last_minute),
        last_hour=_rates(view.last_hour),
        paused=view.paused,
        workers=view.workers,
        wait=latency(view.wait),
        run=latency(view.run),
    )


def _rates(rates: pb.Rates) -> Rates:
    return Rates(rates.submitted, rates.completed, rates.failed, rates.dead_lettered)
