"""When jobs waited for a worker: from when they could be claimed until a claim that led to a start.

A claim that its worker released has led to none: the job has waited all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from faults.changes import CLAIMS, HAND_OVER, PROMOTE, RELEASE, SNOOZE, JobChange, JobState
from faults.spans import FOR_EVER

if TYPE_CHECKING:
    from faults.evidence import Step


class Ready(NamedTuple):
    """A job could be claimed: it was due, and no worker held it. From a commit to the next statement."""

    begin: int
    end: int
    job_id: str
    topic: str
    priority: int
    submitted_at: int
    claimed_by: str | None = None  # the worker whose claim ended it


class Wait(NamedTuple):
    """All such stretches until a claim led to a start, or the job was canceled."""

    begin: int
    end: int
    job_id: str
    topic: str
    kind: str  # what it waited for: its first attempt, a retry, …
    stretches: tuple[Ready, ...]
    claim: JobChange | None = None  # that ended it


def waits_of(life: Sequence[Step]) -> Iterator[Wait]:
    """The waits of one job."""
    first = life[0].change
    since, kind, stretches = 0, "", list[Ready]()
    state: JobState | None = None  # while it is ready
    for place, (verb, change) in enumerate(life):
        new = change.new
        if state is not None and (new is None or not new.ready or new.priority != state.priority):
            end = _limited(state, change.statement_at)
            stretches.append(_ready(first, since, end, state.priority, new and new.locked_by))
            state = None
        if new is not None and new.ready:
            if state is None:
                since = _seen(change)
                kind = kind if stretches else _kind(life, place)
            state = new
        elif verb == HAND_OVER:
            seen = _seen(change)
            yield Wait(seen, seen, change.job_id, change.topic, _kind(life, place), (), change)
        elif stretches and _ends_wait(life, place):
            yield _wait(stretches, kind, change if verb in CLAIMS else None)
            stretches.clear()
    if state is not None:
        stretches.append(_ready(first, since, _limited(state, FOR_EVER), state.priority))
    if stretches:
        yield _wait(stretches, kind, None)


def _wait(stretches: Sequence[Ready], kind: str, claim: JobChange | None) -> Wait:
    first, last = stretches[0], stretches[-1]
    return Wait(first.begin, last.end, first.job_id, first.topic, kind, tuple(stretches), claim)


def _ready(first: JobChange, begin: int, end: int, priority: int, claimed_by: str | None = None) -> Ready:
    submitted_at = first.at if first.submitted_at is None else first.submitted_at
    end = max(begin, end)
    return Ready(begin, end, first.job_id, first.topic, priority, submitted_at, claimed_by)


def _seen(change: JobChange) -> int:
    return change.committed or change.at


def _limited(state: JobState, end: int) -> int:
    """A job that has never started is not claimed after its start_by."""
    return end if state.start_by is None or state.attempts else min(end, state.start_by)


def _is_claimed(state: JobState | None) -> bool:
    return state is not None and state.locked_by is not None


def _ends_wait(life: Sequence[Step], place: int) -> bool:
    """Whether the change led to a start, or the job is not due any more."""
    verb, change = life[place]
    return not _is_released(life[place + 1 :]) if verb in CLAIMS else not _is_claimed(change.new)


def _is_released(rest: Iterable[Step]) -> bool:
    """Whether the claim before these changes ended with a release."""
    return next((verb == RELEASE for verb, change in rest if not _is_claimed(change.new)), False)


def _kind(life: Sequence[Step], place: int) -> str:
    first = life[0].change
    if first.schedule_id:
        return "scheduled"
    if first.unique_key:
        return "unique"
    if (old := life[place].change.old) is not None and old.held:
        return "in workflow"
    if life[place].verb != PROMOTE:
        return "new" if place == 0 else "again"
    before = next((verb for verb, change in reversed(life[:place]) if _has_ended(change)), None)
    return "delayed" if before is None else "woken" if before == SNOOZE else "retry"


def _has_ended(change: JobChange) -> bool:
    """Whether the change ended a run."""
    return _is_claimed(change.old) and not _is_claimed(change.new)
