"""Transitions: changes of jobs' statuses, for watchers. They are made right after a commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from pulse_server.base.bounds import LEASE_EXPIRED, TIME_LIMIT_EXCEEDED
from pulse_server.jobs.reports import StoredProgress
from pulse_server.jobs.rules import (
    LEGAL_TRANSITIONS,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobStatus,
    Progress,
    Reaped,
)

TRANSITION_ERROR_CHARACTERS = 120


class Transition(NamedTuple):
    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str
    """Its first line, cut."""
    at: datetime
    progress: Progress | None = None
    """Set: the job runs as before, and its handler has reported this."""


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
    """A handler asked to wait. The error is set if the job may not wait any more."""
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


def in_order(transitions: Iterable[Transition]) -> list[Transition]:
    """The same transitions, with the transitions of each job in the order of its life.

    Transitions of one server arrive in order. But a job may be submitted to one server, claimed by
    another and reported to a third. Where the order of arrival is impossible, attempts and statuses
    show the true order.
    """
    ordered = list(transitions)
    places: dict[str, list[int]] = {}
    for place, transition in enumerate(ordered):
        places.setdefault(transition.job_id, []).append(place)
    for own in places.values():
        life = [ordered[place] for place in own]
        if not _is_possible(life):
            for place, transition in zip(own, sorted(life, key=_step), strict=True):
                ordered[place] = transition
    return ordered


def _is_possible(life: Sequence[Transition]) -> bool:
    return all(
        _is_progress(earlier, later)
        or (
            later.status in LEGAL_TRANSITIONS[earlier.status]
            and later.attempt >= _next_attempt(earlier, later)
        )
        for earlier, later in pairwise(life)
    )


def _is_progress(earlier: Transition, later: Transition) -> bool:
    return (
        later.progress is not None
        and earlier.status is JobStatus.RUNNING
        and earlier.attempt == later.attempt
    )


def _next_attempt(earlier: Transition, later: Transition) -> int:
    # A released job repeats its attempt after RETRYING. A cancel then names the attempt before.
    is_claimed = earlier.status is JobStatus.PENDING and later.status is JobStatus.RUNNING
    was_given_back = earlier.status is JobStatus.RETRYING and later.status is JobStatus.CANCELED
    return earlier.attempt + is_claimed - was_given_back


def _step(transition: Transition) -> tuple[int, int]:
    """How far a job is in its life: its attempt, then the phase before, in or after the run."""
    match transition.status:
        case JobStatus.PENDING:
            step = 0 if transition.attempt == 0 else 3  # submitted, or redriven after that attempt
        case JobStatus.RUNNING:
            step = 1
        case _:
            step = 2
    return transition.attempt, step
