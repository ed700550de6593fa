"""Transitions: changes of jobs' statuses, for watchers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from pulse_server.domain.progress import Progress
from pulse_server.domain.status import LEGAL_TRANSITIONS, JobStatus


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


def in_order(transitions: Iterable[Transition]) -> list[Transition]:
    """The same transitions, those of each job in the order of its life.

    What one server commits is heard of in order, but a job may be submitted to one, claimed by another and
    reported to a third. Where the order of arrival is impossible, attempts and statuses show the true one.
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
    # After RETRYING the attempt may be the same once more: it was given back. A cancel names the one before.
    is_claimed = earlier.status is JobStatus.PENDING and later.status is JobStatus.RUNNING
    was_given_back = earlier.status is JobStatus.RETRYING and later.status is JobStatus.CANCELED
    return earlier.attempt + is_claimed - was_given_back


def _step(transition: Transition) -> tuple[int, int]:
    """How far into its life a job is: by the attempt, and by what may come before and after its run."""
    match transition.status:
        case JobStatus.PENDING:
            step = 0 if transition.attempt == 0 else 3  # submitted, or redriven after that attempt
        case JobStatus.RUNNING:
            step = 1
        case _:
            step = 2
    return transition.attempt, step
