"""Jobs, as the verbs that look at them answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pulse.models.times import time_of
from pulse.payload import decode_json

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


class JobStatus(StrEnum):
    """Where a job is in its life."""

    PENDING = "PENDING"
    """Waits for its time, or for a worker."""
    RUNNING = "RUNNING"
    """Held by a worker."""
    RETRYING = "RETRYING"
    """Failed, and will run again at `next_run_at`."""
    COMPLETED = "COMPLETED"
    """Its handler succeeded."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """Failed for the last time; `Pulse.retry` gives it further attempts."""
    CANCELED = "CANCELED"
    """Cancelled before it completed; `Pulse.retry` brings it back."""

    @property
    def is_finished(self) -> bool:
        """True when nothing happens to the job any more by itself."""
        return self in _FINISHED


_FINISHED = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that was not a success."""

    attempt: int
    worker_id: str
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str
    """failed, discarded, lease_expired or canceled."""
    error: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """Everything that the server knows about a job. All times are aware and in UTC."""

    id: str
    status: JobStatus
    topic: str
    priority: int
    attempts: int
    max_attempts: int
    submitted_at: datetime | None
    next_run_at: datetime | None
    """While PENDING or RETRYING: not before this time."""
    started_at: datetime | None
    """Of the last attempt."""
    finished_at: datetime | None
    lease_until: datetime | None
    """While RUNNING: the worker has to prove by then that it is alive."""
    worker_id: str | None
    """Who holds it, or who finished it."""
    last_error: str | None
    """Of the last attempt that failed; kept after a later success."""
    idempotency_key: str | None
    schedule_id: str | None
    metadata: Mapping[str, str]
    payload: bytes
    """As it was stored; empty in lists, which leave it out."""
    error_group: str | None
    """Of a dead letter: what it shares with those that died of the same error."""
    history: tuple[Attempt, ...]
    """The attempts that were not a success; empty in lists, which leave it out."""

    @property
    def args(self) -> Any:
        """The payload read as JSON, or None when it is empty."""
        return decode_json(self.payload)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs that were asked for, newest first."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Give it to the next `list_jobs`; None when this was the last page."""

    def __iter__(self) -> Iterator[JobInfo]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


def job_info(view: pb.JobView) -> JobInfo:
    """Read a job off the wire."""
    return JobInfo(
        id=view.job_id,
        status=JobStatus(view.status),
        topic=view.topic,
        priority=view.priority,
        attempts=view.attempts,
        max_attempts=view.max_attempts,
        submitted_at=time_of(view, "submitted_at"),
        next_run_at=time_of(view, "next_run_at"),
        started_at=time_of(view, "started_at"),
        finished_at=time_of(view, "finished_at"),
        lease_until=time_of(view, "lease_until"),
        worker_id=view.worker_id or None,
        last_error=view.last_error or None,
        idempotency_key=view.idempotency_key or None,
        schedule_id=view.schedule_id or None,
        error_group=view.error_group or None,
        metadata=dict(view.metadata),
        payload=view.payload,
        history=tuple(
            Attempt(
                attempt=past.attempt,
                worker_id=past.worker_id,
                started_at=time_of(past, "started_at"),
                ended_at=time_of(past, "ended_at"),
                outcome=past.outcome,
                error=past.error,
            )
            for past in view.history
        ),
    )
