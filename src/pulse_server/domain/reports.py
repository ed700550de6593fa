"""Workers' reports on their claims, and the judgment of a report that the fence refused."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, TypeAlias

from pulse_server.base.errors import InvalidTransition, JobLocked, JobNotFound
from pulse_server.domain.jobs import Claim, Job, Outcome
from pulse_server.domain.progress import ProgressReport
from pulse_server.domain.status import JobStatus


class FailureReport(NamedTuple):
    """An attempt failed: its error, and when the next one is due if the worker sets it."""

    claim: Claim
    error: str = ""
    retry_after: timedelta | None = None
    discard: bool = False
    error_group: str = ""
    """The group of the job if this failure dead-letters it."""
    timed_out: bool = False
    """Whether the attempt ran into its time limit."""
    retry_after_is_policy: bool = False
    """Whether an operator's backoff wins over retry_after."""
    progress: ProgressReport | None = None
    """The last progress, if it was not stored yet."""
    in_transaction: bool = False
    """Whether the handler completed the job in its own transaction. Uncommitted: it failed."""


class SnoozeReport(NamedTuple):
    """An attempt ended without a result: the handler asked to run the job again after the delay."""

    claim: Claim
    delay: timedelta
    reason: str = ""
    progress: ProgressReport | None = None


class ResultReport(NamedTuple):
    """An attempt succeeded, and its handler returned something."""

    claim: Claim
    result: bytes


class SuspendReport(NamedTuple):
    """An attempt ended without a result: its handler sleeps, or waits for a signal. ADR-0069"""

    claim: Claim
    step: str
    """The step that is stored for it."""
    signal: str = ""
    """The signals that end the wait, one in each line. Empty: it sleeps."""
    delay: timedelta | None = None
    """When it runs again, without the signal. None: not before it comes."""
    progress: ProgressReport | None = None


class NewStep(NamedTuple):
    """A step that the holder of the claim has run."""

    claim: Claim
    name: str
    value: bytes
    ran: timedelta = timedelta(0)

    @property
    def size(self) -> int:
        """How many bytes count towards the limit of its job."""
        return len(self.name.encode()) + len(self.value)


Report: TypeAlias = Claim | ResultReport | FailureReport | SnoozeReport | SuspendReport
"""How an attempt ended. A claim alone reports a success without a result: one tuple for a job, and there may
be thousands."""


def claim_of(report: Report) -> Claim:
    return report if isinstance(report, Claim) else report.claim


def stands(claim: Claim, job: Job) -> bool:
    """Whether the claim holds the job, so that only a lock can have kept its report out."""
    return job.locked_by is not None and claim.covers(Claim(job.id, job.locked_by, job.attempts, job.run))


def is_repeat(report: Report, job: Job) -> bool:
    """Whether this very report was taken before: its answer was lost and the worker sent it again."""
    claim = claim_of(report)
    if isinstance(report, Claim | ResultReport):
        return _has_completed(claim, job)
    if isinstance(report, FailureReport) and report.in_transaction and _has_completed(claim, job):
        return True
    if claim.attempt is None:
        return False
    outcomes = _outcomes(report)
    return any(
        past.outcome in outcomes and claim.covers(Claim(job.id, past.worker_id, past.attempt, past.run))
        for past in job.history
    )


def _has_completed(claim: Claim, job: Job) -> bool:
    ended = Claim(job.id, job.finished_by, job.attempts, job.run)
    return job.status is JobStatus.COMPLETED and claim.covers(ended)


def _outcomes(report: FailureReport | SnoozeReport | SuspendReport) -> set[Outcome]:
    if not isinstance(report, FailureReport):
        return {Outcome.SUSPENDED if isinstance(report, SuspendReport) else Outcome.SNOOZED}
    # The server may have ended the attempt for its time limit: a failure that is reported then came too late.
    return {Outcome.FAILED, Outcome.DISCARDED, *([Outcome.TIMED_OUT] if report.timed_out else [])}


def refusal(report: Report, job: Job) -> InvalidTransition:
    """Why the report was refused, as a sentence for the worker that names the job's holder."""
    claim = claim_of(report)
    if job.status is not JobStatus.RUNNING:
        problem = f"Job {job.id} is {job.status}, not RUNNING: the report was not taken."
    elif claim.attempt is not None and claim.attempt != job.attempts:
        problem = (
            f"Job {job.id} is at attempt {job.attempts}: the report of attempt {claim.attempt} came too late."
        )
    elif claim.run is not None and claim.run != job.run:
        problem = f"Job {job.id} was claimed again: the report of the claim before came too late."
    else:
        problem = f"Job {job.id} is held by another worker: the report was not taken."
    return InvalidTransition(job.id, problem)


def lost(claim: Claim, job: Job | None) -> InvalidTransition | JobLocked | JobNotFound:
    """Why a claim does not hold."""
    if job is None:
        return JobNotFound(claim.job_id)
    return JobLocked(job.id) if stands(claim, job) else refusal(claim, job)
