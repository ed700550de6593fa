"""Who is there: workers with what they hold, and servers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


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
    topic_count: int = 0
    """How many topics it takes. Of more than a hundred, `topics` has the first."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One pulsed process."""

    id: str
    name: str
    started_at: datetime | None
    workers: int
    """Connected to it."""


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
        topic_count=view.topic_count or len(view.topics),
    )


def server_info(view: pb.ServerView) -> ServerInfo:
    """Read a server off the wire."""
    return ServerInfo(view.server_id, view.name, time_of(view, "started_at"), view.workers)
