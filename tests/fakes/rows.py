"""Pure functions over the rows of the table in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Attempt, ClaimedJob, Job, NewJob, Outcome
from pulse_server.domain.status import JobStatus

HISTORY_CAP = 20
HISTORY_ERROR_CHARACTERS = 1000


def new_row(job: NewJob, now: datetime) -> Job:
    starts = job.run_at if job.run_at is not None else now + (job.delay or timedelta(0))
    return Job(
        id=job.id,
        topic=job.topic,
        status=JobStatus.PENDING,
        priority=job.priority,
        attempts=0,
        max_attempts=job.max_attempts,
        submitted_at=now,
        next_run_at=starts,
        payload=job.payload,
        ready=starts <= now if job.run_at is not None else job.delay is None,
        idempotency_key=job.idempotency_key,
        schedule_id=job.schedule_id,
        metadata=dict(job.metadata or {}),
        start_by=None if job.start_within is None else starts + job.start_within,
        lane=job.lane,
    )


def is_same(new: NewJob, job: Job) -> bool:
    """Whether a submit repeats the one of this job."""
    return (new.topic, new.payload) == (job.topic, job.payload)


def as_claimed(job: Job) -> ClaimedJob:
    """The running job as its worker receives it."""
    return ClaimedJob(
        job.id,
        job.topic,
        job.payload,
        job.attempts,
        job.priority,
        job.max_attempts,
        job.metadata or None,
        job.idempotency_key,
        job.locked_by or "",
        not job.delivered,
        ((job.started_at or job.next_run_at) - job.next_run_at).total_seconds(),
        snoozes=job.snoozes or None,
    )


def with_attempt(job: Job, outcome: Outcome, error: str, now: datetime) -> Job:
    """The job with its running attempt added to its history."""
    ended = Attempt(
        attempt=job.attempts,
        worker_id=job.locked_by or "",
        started_at=job.started_at,
        ended_at=now,
        outcome=outcome,
        error=error[:HISTORY_ERROR_CHARACTERS],
    )
    return replace(job, history=(*job.history, ended)[-HISTORY_CAP:])
