"""What the whole queue looks like: plain frozen data, as the overview verbs answer with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models import JobStatus, time_of

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
