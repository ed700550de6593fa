"""Topics with their counts, rates and latencies."""

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
    """The counts of a topic in a span of time."""

    submitted: int
    completed: int
    failed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. Completed jobs are only counted in the rates."""

    topic: str
    ready: int
    """Can be claimed now."""
    waiting: int
    """Delayed, or between two attempts."""
    running: int
    dead_lettered: int
    canceled: int
    oldest_ready_at: datetime | None
    """When the oldest ready job became due."""
    last_minute: Rates
    last_hour: Rates
    paused: bool
    workers: int
    """Connected workers that serve this topic."""
    wait: Latency
    """From due to claimed, over the last hour."""
    run: Latency
    """From claimed to reported, over the last hour."""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One page of topics."""

    topics: tuple[TopicInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list_topics`. None on the last page."""
    total: int
    """The number of matching topics on all pages."""
    sum: TopicInfo
    """The totals over all topics, without a name, workers and latencies."""

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)


def topic_page(response: pb.ListTopicsResponse) -> TopicPage:
    """Return the page in a message."""
    topics = tuple(topic_info(view) for view in response.topics)
    return TopicPage(topics, response.next_page_token or None, response.total, topic_info(response.sum))


def topic_info(view: pb.TopicView) -> TopicInfo:
    """Return the topic in a message."""
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
