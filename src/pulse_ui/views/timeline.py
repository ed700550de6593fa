"""The attempts of a job on one line of time: what it waited for, and what it ran.

Drawn to scale, but for two things: what is short stays visible, and a wait that would leave no room for the
rest is shortened, and marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pulse
from pulse_ui.views import foreign_text

HISTORY_KEPT = 20
"""So many attempts the server remembers of a job. ADR-0013"""
_ERROR_KEPT = 1000
"""So many characters of each one's error; of the last error it remembers more."""
_SHORTEST_ATTEMPT = 1.2
_SHORTEST_WAIT = 0.2
"""Of a hundred: what the shortest take of the width."""
_OUT_OF_SCALE = 8.0
"""A wait that is so many times as long as everything shorter is shortened."""
_SHORTENED_TO = 0.6

_WORDS = {
    "failed": "Failed",
    "discarded": "Given up",
    "lease_expired": "Lease expired",
    "canceled": "Cancelled",
    "completed": "Completed",
    "running": "Running",
    "due": "Due",
    "waiting": "Waits",
}
# By hand, since nothing else leads on from there.
_LAST_OUTCOMES = frozenset({"discarded", "canceled"})


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt, or the one to come."""

    anchor: str
    """The id of its element."""
    number: int
    outcome: str
    """failed, discarded, lease_expired, canceled, completed, running; due or waiting if it is yet to come."""
    worker_id: str
    started_at: datetime | None
    ended_at: datetime | None
    error: str
    """Fit to be read, and escaped by whoever shows it."""
    error_is_cut: bool = False
    waited: float | None = None
    """Seconds between what was before and its start."""
    ran: float | None = None
    was_brought_back: bool = False
    """Somebody retried the job before it."""
    wait_left: float = 0.0
    wait_width: float = 0.0
    """In percent of the line."""
    wait_is_shortened: bool = False
    run_left: float = 0.0
    run_width: float = 0.0

    @property
    def word(self) -> str:
        return _WORDS.get(self.outcome, self.outcome)

    @property
    def is_to_come(self) -> bool:
        return self.outcome in ("due", "waiting")

    @property
    def summary(self) -> str:
        return foreign_text.summary(self.error)

    @property
    def has_more(self) -> bool:
        return foreign_text.has_more(self.error)


@dataclass(frozen=True, slots=True)
class Timeline:
    attempts: tuple[AttemptView, ...]
    """Oldest first; the one to come, if any, is the last."""
    left_out: int
    """So many early attempts are no longer remembered."""
    begins_at: datetime | None
    ends_at: datetime | None

    @property
    def made(self) -> tuple[AttemptView, ...]:
        """The attempts that were made, newest first."""
        return tuple(attempt for attempt in reversed(self.attempts) if not attempt.is_to_come)

    @property
    def is_shortened(self) -> bool:
        return any(attempt.wait_is_shortened for attempt in self.attempts)

    @property
    def ran(self) -> float:
        """Seconds of all attempts that are remembered."""
        return sum(attempt.ran or 0.0 for attempt in self.attempts)


def timeline(job: pulse.JobInfo, now: datetime) -> Timeline:
    """Return the attempts of a job, placed on the line of time."""
    attempts = _named([*map(_past, job.history), *_current(job), *_to_come(job, now)])
    attempts = _with_last_error(attempts, job.last_error or "")
    has_gap = len(job.history) >= HISTORY_KEPT
    left_out = max(0, job.history[0].attempt - 1) if has_gap else 0
    # Without the early attempts nobody knows what filled the time before the first that is left.
    before = None if left_out else job.submitted_at
    measured = list(_measured(attempts, before, now, is_pending=job.status == pulse.JobStatus.PENDING))
    begins_at = before or (attempts[0].started_at if attempts else None)
    ends_at = max((end for one in measured if (end := _end_of(one, now)) is not None), default=begins_at)
    return Timeline(tuple(_placed(measured)), left_out, begins_at, ends_at)


# ---------------------------------------------------------------- which attempts there are


def _past(attempt: pulse.Attempt) -> AttemptView:
    return AttemptView(
        anchor="",
        number=attempt.attempt,
        outcome=attempt.outcome,
        worker_id=attempt.worker_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        error=foreign_text.lines(attempt.error),
        error_is_cut=len(attempt.error) >= _ERROR_KEPT,
    )


def _current(job: pulse.JobInfo) -> Iterable[AttemptView]:
    """The attempt that is not part of the history: one that runs, or that was the success."""
    outcome = {pulse.JobStatus.RUNNING: "running", pulse.JobStatus.COMPLETED: "completed"}.get(job.status)
    if outcome:
        yield AttemptView(
            anchor="",
            number=job.attempts,
            outcome=outcome,
            worker_id=job.worker_id or "",
            started_at=job.started_at,
            ended_at=job.finished_at,
            error="",
        )


def _to_come(job: pulse.JobInfo, now: datetime) -> Iterable[AttemptView]:
    if job.status in (pulse.JobStatus.PENDING, pulse.JobStatus.RETRYING):
        is_due = job.next_run_at is None or job.next_run_at <= now
        yield AttemptView(
            anchor="",
            number=job.attempts + 1,
            outcome="waiting" if is_due else "due",
            worker_id="",
            started_at=job.next_run_at,
            ended_at=None,
            error="",
        )


def _named(attempts: Iterable[AttemptView]) -> list[AttemptView]:
    """An attempt that never reached its worker is not counted, so its number may come again."""
    seen: Counter[int] = Counter()
    named = []
    for attempt in attempts:
        seen[attempt.number] += 1
        again = f"-{seen[attempt.number]}" if seen[attempt.number] > 1 else ""
        named.append(replace(attempt, anchor=f"attempt-{attempt.number}{again}"))
    return named


def _with_last_error(attempts: list[AttemptView], last_error: str) -> list[AttemptView]:
    """The last error is remembered at greater length than the one in the history."""
    whole = foreign_text.lines(last_error)
    for position in range(len(attempts) - 1, -1, -1):
        attempt = attempts[position]
        if attempt.error_is_cut and whole.startswith(attempt.error):
            attempts[position] = replace(attempt, error=whole, error_is_cut=False)
            break
        if attempt.error:
            break
    return attempts


# ---------------------------------------------------------------- where they stand


def _measured(
    attempts: Sequence[AttemptView], before: datetime | None, now: datetime, *, is_pending: bool
) -> Iterable[AttemptView]:
    outcome_before = ""
    for attempt in attempts:
        start = now if attempt.outcome == "waiting" else attempt.started_at
        end = _end_of(attempt, now)
        brought_back = outcome_before in _LAST_OUTCOMES or (
            attempt.is_to_come and is_pending and bool(outcome_before)
        )
        yield replace(
            attempt,
            waited=_seconds(before, start),
            ran=None if attempt.is_to_come else _seconds(start, end),
            was_brought_back=brought_back,
        )
        before, outcome_before = end or before, attempt.outcome


def _end_of(attempt: AttemptView, now: datetime) -> datetime | None:
    if attempt.outcome in ("running", "waiting"):
        return now
    return attempt.started_at if attempt.outcome == "due" else attempt.ended_at


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (end - start).total_seconds())


def _placed(attempts: Sequence[AttemptView]) -> Iterable[AttemptView]:
    waits = [attempt.waited or 0.0 for attempt in attempts]
    runs = [attempt.ran or 0.0 for attempt in attempts]
    drawn = shortened(waits, sum(runs))
    total = sum(drawn) + sum(runs)
    # Everything has its shortest width, and shares the rest by how long it took.
    least = len(attempts) * (_SHORTEST_ATTEMPT + _SHORTEST_WAIT)
    each = (100.0 - least) / total if total > 0 else 0.0
    left = 0.0
    for attempt, wait, drawn_wait, run in zip(attempts, waits, drawn, runs, strict=True):
        wait_width = _SHORTEST_WAIT + drawn_wait * each
        run_width = _SHORTEST_ATTEMPT + run * each
        yield replace(
            attempt,
            wait_left=round(left, 2),
            wait_width=round(wait_width, 2),
            wait_is_shortened=drawn_wait < wait,
            run_left=round(left + wait_width, 2),
            run_width=round(run_width, 2),
        )
        left += wait_width + run_width


def shortened(waits: Sequence[float], ran: float) -> list[float]:
    """Return how long each wait is drawn: one that is out of all proportion leaves room for the others."""
    drawn = list(waits)
    positive = sorted(wait for wait in waits if wait > 0)
    if len(positive) < 2 and not ran:
        return drawn
    so_far = max(ran, positive[0]) if positive else ran
    for position in sorted(range(len(waits)), key=lambda place: waits[place]):
        if waits[position] > _OUT_OF_SCALE * so_far > 0:
            drawn[position] = so_far * _SHORTENED_TO
        so_far += drawn[position]
    return drawn
