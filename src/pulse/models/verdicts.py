"""Verdicts: what became of a job whose attempt did not succeed, or that ended without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from pulse.jobs.models import Attempt, JobInfo, JobStatus

# Of attempts whose verdict their worker passes on. A worker that lost its lease may be gone.
_REPORTED = frozenset({"failed", "discarded", "timed_out", "canceled"})
# The error of an attempt that the server ended at its time limit. Its worker has not reported it.
_ENDED_BY_SERVER = "time limit exceeded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a job: it is retried, it has failed for good, or it is canceled."""

    job: JobInfo
    """The job as it was read after the verdict. A job that is retried may run again by then."""
    status: JobStatus
    """RETRYING, DEAD_LETTERED or CANCELED."""
    next_run_at: datetime | None
    """When it is retried. None if it is not, or if it runs already."""
    attempt: Attempt | None
    """The attempt that ended. None if the job ended while it waited."""


VerdictHook: TypeAlias = Callable[[Verdict], Any]
"""`async def (verdict)`, or a plain function, which runs in a thread."""


def verdict_of_attempt(job: JobInfo, worker_id: str, attempt: int) -> Verdict | None:
    """Return the verdict on an attempt of this worker. None if the worker's report did not decide it."""
    own = [past for past in job.history if (past.attempt, past.worker_id) == (attempt, worker_id)]
    if not own or not _is_reported(own[-1]):
        return None
    is_last = job.history[-1] is own[-1]
    if is_last and job.status in (JobStatus.DEAD_LETTERED, JobStatus.CANCELED):
        return Verdict(job, job.status, None, own[-1])
    next_run_at = job.next_run_at if is_last and job.status is JobStatus.RETRYING else None
    return Verdict(job, JobStatus.RETRYING, next_run_at, own[-1])


def verdict_without_report(job: JobInfo) -> Verdict | None:
    """Return the verdict on a finished job that no worker passes on. None if a worker does."""
    last = job.history[-1] if job.history else None
    if job.status is JobStatus.CANCELED:
        was_running = last is not None and last.outcome == "canceled" and last.attempt == job.attempts
        return None if was_running else Verdict(job, job.status, None, None)
    if last is not None and _is_reported(last):
        return None
    return Verdict(job, job.status, None, last)


def _is_reported(attempt: Attempt) -> bool:
    return attempt.outcome in _REPORTED and attempt.error != _ENDED_BY_SERVER
