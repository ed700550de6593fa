"""The overview of a queue: topics with counts, rates and latencies, workers, and statistics by the minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.progress import Progress, progress_of
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


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a duration, in seconds. They come from buckets: each is accurate to 20%."""

    count: int
    """If 0, the percentiles have no meaning."""
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Minute:
    """The counts of one minute."""

    at: datetime | None
    submitted: int
    completed: int
    failed: int
    """Failed attempts."""
    retried: int
    dead_lettered: int
    canceled: int
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Statistics:
    """Every minute of a span, oldest first. The last one is still running."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, over the whole span."""
    run: Latency
    """From claimed to reported, over the whole span."""


def statistics(response: pb.GetStatisticsResponse) -> Statistics:
    """Return the statistics in a message."""
    return Statistics(
        tuple(
            Minute(
                at=time_of(minute, "at"),
                submitted=minute.submitted,
                completed=minute.completed,
                failed=minute.failed,
                retried=minute.retried,
                dead_lettered=minute.dead_lettered,
                canceled=minute.canceled,
                wait=latency(minute.wait),
                run=latency(minute.run),
            )
            for minute in response.minutes
        ),
        latency(response.wait),
        latency(response.run),
    )


def latency(message: pb.Latency) -> Latency:
    """Return the latency in a message."""
    return Latency(message.count, message.p50_seconds, message.p95_seconds, message.p99_seconds)


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker holds."""

    id: str
    topic: str
    attempt: int
    since: datetime | None
    lease_until: datetime | None
    progress: Progress | None = None
    """As last stored: of this attempt, or of an earlier one."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: its connection, if it has one, and the jobs it holds."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime | None
    """None if it holds jobs and is not connected."""
    server: str | None
    held_count: int
    held: tuple[HeldJob, ...]
    """At most twenty, the longest held first."""
    topic_count: int = 0
    """The number of its topics. `topics` lists at most the first hundred."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One pulsed process."""

    id: str
    name: str
    started_at: datetime | None
    workers: int
    """The number of workers connected to it."""


def worker_info(view: pb.WorkerView) -> WorkerInfo:
    """Return the worker in a message."""
    return WorkerInfo(
        worker_id=view.worker_id,
        topics=tuple(view.topics),
        capacity=view.capacity,
        connected_at=time_of(view, "connected_at"),
        server=view.server or None,
        held_count=view.held_count,
        held=tuple(
            HeldJob(
                job.job_id,
                job.topic,
                job.attempt,
                time_of(job, "since"),
                time_of(job, "lease_until"),
                progress_of(job),
            )
            for job in view.held
        ),
        topic_count=view.topic_count or len(view.topics),
    )


def server_info(view: pb.ServerView) -> ServerInfo:
    """Return the server in a message."""
    return ServerInfo(view.server_id, view.name, time_of(view, "started_at"), view.workers)
