"""Pure functions over the rows of the table in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

from pulse_server.domain.jobs import Attempt, ClaimedJob, Job, NewJob, Outcome
from pulse_server.domain.status import JobStatus
from pulse_server.domain.steps import Signal, Step

HISTORY_CAP = 20
HISTORY_ERROR_CHARACTERS = 1000
# When a job is due that waits for a signal without a time limit, or for other jobs of its workflow.
WITHOUT_END = datetime(9999, 1, 1, tzinfo=UTC)
# The fields that a new job and its row have in common.
_TAKEN_OVER = [field.name for field in fields(Job) if field.name in NewJob._fields]


@dataclass(slots=True)
class KeptSignal:
    """A signal as stored. A step takes it once."""

    signal: Signal
    is_taken: bool = False
    is_counted: bool = True
    """Whether it counts towards the limits of its job. A fresh retry starts the count anew."""

    @property
    def size(self) -> int:
        """How many bytes count towards the limit of its job."""
        return len(self.signal.name.encode()) + len(self.signal.value)


def new_row(job: NewJob, now: datetime) -> Job:
    starts = job.run_at if job.run_at is not None else now + (job.delay or timedelta(0))
    given = {name: getattr(job, name) for name in _TAKEN_OVER}
    return Job(
        **given | {"metadata": dict(job.metadata or {})},
        status=JobStatus.PENDING,
        attempts=0,
        submitted_at=now,
        next_run_at=starts,
        ready=starts <= now if job.run_at is not None else job.delay is None,
        start_by=None if job.start_within is None else starts + job.start_within,
        unique_key=job.unique and job.unique.key,
        unique_scope=job.unique and job.unique.scope.value,
    )


def is_same(new: NewJob, job: Job) -> bool:
    """Whether a submit repeats the one of this job."""
    return (new.topic, new.payload) == (job.topic, job.payload)


def as_claimed(job: Job, steps: Sequence[Step] | None) -> ClaimedJob:
    """The running job as its worker receives it. `steps` is None for a job without steps and signals."""
    return ClaimedJob(
        job.id,
        job.topic,
        job.payload,
        job.attempts,
        job.run,
        job.priority,
        job.max_attempts,
        job.metadata or None,
        job.idempotency_key,
        job.locked_by or "",
        not job.delivered,
        ((job.started_at or job.next_run_at) - job.next_run_at).total_seconds(),
        has_steps=steps is not None,
        progress=job.progress,
        steps=steps,
    )


def with_attempt(job: Job, outcome: Outcome, error: str, now: datetime) -> Job:
    """The job with its running attempt added to its history."""
    ended = Attempt(
        attempt=job.attempts,
        run=job.run,
        worker_id=job.locked_by or "",
        started_at=job.started_at,
        ended_at=now,
        outcome=outcome,
        error=error[:HISTORY_ERROR_CHARACTERS],
    )
    return replace(job, history=(*job.history, ended)[-HISTORY_CAP:])


def as_read(step: Step, now: datetime) -> Step:
    """The step with the answer whether its wait is over."""
    return step._replace(is_due=step.until is not None and step.until <= now)


def as_kept(step: Step) -> Step:
    """The step of a completed job: without its value."""
    return step._replace(value=None, signal="", is_due=True)
