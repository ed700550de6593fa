"""Transitions as watchers see them, made right after a commit."""

from __future__ import annotations

from datetime import UTC, datetime

from pulse_server.domain.error_groups import LEASE_EXPIRED, TIME_LIMIT_EXCEEDED
from pulse_server.domain.jobs import Claim, ClaimedJob, Ended, Job, Reaped
from pulse_server.domain.leases import StoredProgress
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition

TRANSITION_ERROR_CHARACTERS = 120


def transition(
    job_id: str,
    topic: str,
    status: JobStatus,
    attempt: int | None = None,
    worker_id: str | None = None,
    error: str = "",
) -> Transition:
    """A transition that was committed just now."""
    if error:
        error = error.partition("\n")[0][:TRANSITION_ERROR_CHARACTERS]
    return Transition(job_id, topic, status, attempt or 0, worker_id, error, datetime.now(UTC))


def of_new(job_id: str, topic: str) -> Transition:
    return transition(job_id, topic, JobStatus.PENDING)


def of_start(job: ClaimedJob) -> Transition:
    return transition(job.id, job.topic, JobStatus.RUNNING, job.attempt, job.worker_id)


def of_claim(claim: Claim, topic: str, status: JobStatus, error: str = "") -> Transition:
    return transition(claim.job_id, topic, status, claim.attempt, claim.worker_id, error)


def of_wait(claim: Claim, ended: Ended, last_error: str) -> Transition:
    """A handler asked to wait. The error is that of a job which may not any more."""
    error = last_error if ended.status is JobStatus.DEAD_LETTERED else ""
    return of_claim(claim, ended.topic, ended.status, error)


def of_reap(reaped: Reaped) -> Transition:
    error = TIME_LIMIT_EXCEEDED if reaped.timed_out else LEASE_EXPIRED
    return of_claim(reaped.claim, reaped.topic, reaped.status, error)


def of_progress(stored: StoredProgress) -> Transition:
    claim = stored.claim
    change = transition(claim.job_id, stored.topic, JobStatus.RUNNING, claim.attempt, claim.worker_id)
    return change._replace(progress=stored.progress)


def of_change(job: Job, reason: str = "") -> Transition:
    return transition(job.id, job.topic, job.status, job.attempts, error=reason)
