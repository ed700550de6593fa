"""Workers with the jobs they hold, and servers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.progress import Progress, progress_of
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


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
