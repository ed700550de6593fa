"""Changes of jobs as `watch` yields them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.jobs import JobStatus
from pulse.models.progress import Progress, progress_of
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Transition:
    """One committed change of a job's status, or of its progress."""

    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str | None
    """The first line of the error."""
    at: datetime | None
    progress: Progress | None = None
    """Set with `watch(progress=True)`: the job runs as before, and its handler has reported this."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """The changes since the previous item."""

    transitions: tuple[Transition, ...]
    missed: int
    """The number of further changes, of any topic, that were dropped."""
    interrupted: bool = False
    """True after the connection was lost: changes in between are missing."""


def transitions(response: pb.WatchJobsResponse, *, interrupted: bool = False) -> Transitions:
    """Return the changes in a message."""
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
                progress=progress_of(change),
            )
            for change in response.transitions
        ),
        response.missed,
        interrupted,
    )
