"""What the whole queue looks like: plain frozen data, as the overview verbs answer with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models import JobInfo, JobStatus, job_info, time_of

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
class Latency:
    """How long something took, in seconds. They come from buckets: each is right to within a fifth."""

    count: int
    """0: it did not happen, and the rest says nothing."""
    p50: float
    p95: float
    p99: float


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
class HeldJob:
    """A job in the hands of a worker."""

    id: str
    topic: str
    attempt: int
    since: datetime | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: its connection, if it has one, and what it holds."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime | None
    """None: it holds jobs but is connected to no server."""
    server: str | None
    held_count: int
    held: tuple[HeldJob, ...]
    """The longest held first, twenty at the most."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One pulsed process."""

    id: str
    name: str
    started_at: datetime | None
    workers: int
    """Connected to it."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one topic whose errors are alike but for numbers, ids and quoted values."""

    topic: str
    error_group: str
    """`none` for those that died before there were groups."""
    count: int
    first_at: datetime | None
    last_at: datetime | None
    sample: JobInfo
    """The one that died last, without its payload."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters in groups, those first that somebody joined last."""

    groups: tuple[DeadLetterGroup, ...]
    groups_left_out: int
    """So many more did not fit the limit."""
    counted_at: datetime | None

    def __iter__(self) -> Iterator[DeadLetterGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in one minute."""

    at: datetime | None
    submitted: int
    completed: int
    failed: int
    """Attempts, whatever became of their jobs."""
    retried: int
    dead_lettered: int
    canceled: int
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Statistics:
    """What happened minute by minute: every one, oldest first. The last one is not over yet."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, in the whole span."""
    run: Latency
    """From claimed to reported, in the whole span."""


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs matched, and when. Give `counted_at` as `before` to act on no more than these."""

    count: int
    counted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step of an action on many jobs did."""

    changed: int
    next_cursor: str | None
    """Give it to the next step; None when nothing that matches is left."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's status, as it was committed."""

    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str | None
    """Its first line."""
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Transitions:
    """What is new since the last one."""

    transitions: tuple[Transition, ...]
    missed: int
    """So many more happened than could be told, of any topic."""
    interrupted: bool = False
    """The connection had been lost, and with it whatever happened meanwhile."""


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
        wait=_latency(view.wait),
        run=_latency(view.run),
    )


def worker_info(view: pb.WorkerView) -> WorkerInfo:
    """Read a worker off the wire."""
    return WorkerInfo(
        worker_id=view.worker_id,
        topics=tuple(view.topics),
        capacity=view.capacity,
        connected_at=time_of(view, "connected_at"),
        server=view.server or None,
        held_count=view.held_count,
        held=tuple(
            HeldJob(job.job_id, job.topic, job.attempt, time_of(job, "since"), time_of(job, "lease_until"))
            for job in view.held
        ),
    )


def server_info(view: pb.ServerView) -> ServerInfo:
    """Read a server off the wire."""
    return ServerInfo(view.server_id, view.name, time_of(view, "started_at"), view.workers)


def dead_letters(response: pb.ListDeadLetterGroupsResponse) -> DeadLetters:
    """Read the groups of dead letters off the wire."""
    return DeadLetters(
        tuple(
            DeadLetterGroup(
                topic=group.topic,
                error_group=group.error_group,
                count=group.count,
                first_at=time_of(group, "first_at"),
                last_at=time_of(group, "last_at"),
                sample=job_info(group.sample),
            )
            for group in response.groups
        ),
        response.groups_left_out,
        time_of(response, "counted_at"),
    )


def statistics(response: pb.GetStatisticsResponse) -> Statistics:
    """Read the minutes off the wire."""
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
                wait=_latency(minute.wait),
                run=_latency(minute.run),
            )
            for minute in response.minutes
        ),
        _latency(response.wait),
        _latency(response.run),
    )


def transitions(response: pb.WatchJobsResponse, *, interrupted: bool = False) -> Transitions:
    """Read what happened off the wire."""
    return Transitions(
        tuple(
            Transition(
                job_id=change.job_id,
                topic=change.topic,
                status=JobStatus(change.status),
                attempt=change.attempt,
                worker_id=change.worker_id or None,
                error=change.error or None,
                at=time_of(change, "at"),
            )
            for change in response.transitions
        ),
        response.missed,
        interrupted,
    )


def _rates(rates: pb.Rates) -> Rates:
    return Rates(rates.submitted, rates.completed, rates.failed, rates.dead_lettered)


def _latency(latency: pb.Latency) -> Latency:
    return Latency(latency.count, latency.p50_seconds, latency.p95_seconds, latency.p99_seconds)
