"""Changes of jobs, as those who watch hear of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.jobs import JobStatus
from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


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
