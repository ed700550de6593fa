"""The attempts of a job, past, running or upcoming: outcome, wait and run time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_text.jobs import WAITING
from pulse_ui import tuning

OUTCOMES = {
    "failed": ("✕", "Failed"),
    "discarded": ("✕", "Given up"),
    "timed_out": ("✕", "Timed out"),
    "snoozed": ("◷", "Snoozed"),
    "suspended": ("◷", "Suspended"),
    "lease_expired": ("⧖", "Lease expired"),
    "canceled": ("–", "Canceled"),
    "completed": ("✓", "Completed"),
    "running": ("▶", "Running"),
    "due": ("↻", "Due"),
    "waiting": ("○", "Waiting"),
}
"""The mark and the word of each: the outcomes of the history, and those outside of it."""
# After these only a retry by an operator makes another attempt.
_LAST_OUTCOMES = frozenset({"discarded", "canceled"})


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt, past, running or upcoming."""

    anchor: str
    """The id of its element."""
    number: int
    outcome: str
    """One of OUTCOMES, or a name of a later pulsed; due or waiting if it is upcoming."""
    worker_id: str
    started_at: datetime | None
    ended_at: datetime | None
    error: str
    """Printable text, not escaped for HTML."""
    error_is_cut: bool = False
    waited: float | None = None
    """Seconds between the previous end and its start."""
    ran: float | None = None
    was_retried: bool = False
    """An operator retried the job before it."""
    wait_left: float = 0.0
    wait_width: float = 0.0
    """In percent of the line."""
    wait_is_shortened: bool = False
    run_left: float = 0.0
    run_width: float = 0.0

    @property
    def word(self) -> str:
        return OUTCOMES[self.outcome][1] if self.outcome in OUTCOMES else self.outcome

    @property
    def mark(self) -> str:
        return OUTCOMES[self.outcome][0] if self.outcome in OUTCOMES else "·"

    @property
    def is_to_come(self) -> bool:
        return self.outcome in ("due", "waiting")

    @property
    def summary(self) -> str:
        return printable.summary(self.error)

    @property
    def has_more(self) -> bool:
        return printable.has_more(self.error)


def attempts_of(job: pulse.JobInfo, now: datetime) -> tuple[list[AttemptView], int]:
    """Return the attempts, oldest first, and how many early ones are no longer stored."""
    attempts = _named([*map(_past, job.history), *_current(job), *_to_come(job, now)])
    attempts = _with_last_error(attempts, job.last_error or "")
    has_gap = len(job.history) >= tuning.HISTORY_KEPT
    left_out = max(0, job.history[0].attempt - 1) if has_gap else 0
    # Without the early attempts, the wait before the first stored one is unknown.
    before = None if left_out else job.submitted_at
    is_pending = job.status == pulse.JobStatus.PENDING
    return list(_measured(attempts, before, now, is_pending=is_pending)), left_out


def _past(attempt: pulse.Attempt) -> AttemptView:
    return AttemptView(
        anchor="",
        number=attempt.attempt,
        outcome=attempt.outcome,
        worker_id=attempt.worker_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        error=printable.lines(attempt.error),
        error_is_cut=len(attempt.error) >= tuning.ERROR_KEPT,
    )


def _current(job: pulse.JobInfo) -> Iterable[AttemptView]:
    """Yield the attempt outside of the history: running or completed."""
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
    if job.status in WAITING:
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
    """Set the anchors. An attempt that never reached its worker is not counted, so numbers may repeat."""
    seen: Counter[int] = Counter()
    named = []
    for attempt in attempts:
        seen[attempt.number] += 1
        again = f"-{seen[attempt.number]}" if seen[attempt.number] > 1 else ""
        named.append(replace(attempt, anchor=f"attempt-{attempt.number}{again}"))
    return named


def _with_last_error(attempts: list[AttemptView], last_error: str) -> list[AttemptView]:
    """Replace the cut error of the last failure: `last_error` is stored at greater length."""
    whole = printable.lines(last_error)
    for position in range(len(attempts) - 1, -1, -1):
        attempt = attempts[position]
        if attempt.error_is_cut and whole.startswith(attempt.error):
            attempts[position] = replace(attempt, error=whole, error_is_cut=False)
            break
        if attempt.error:
            break
    return attempts


def _measured(
    attempts: Sequence[AttemptView], before: datetime | None, now: datetime, *, is_pending: bool
) -> Iterable[AttemptView]:
    outcome_before = ""
    for attempt in attempts:
        start = now if attempt.outcome == "waiting" else attempt.started_at
        end = end_of(attempt, now)
        is_retried = outcome_before in _LAST_OUTCOMES or (
            attempt.is_to_come and is_pending and bool(outcome_before)
        )
        yield replace(
            attempt,
            waited=_seconds(before, start),
            ran=None if attempt.is_to_come else _seconds(start, end),
            was_retried=is_retried,
        )
        before, outcome_before = end or before, attempt.outcome


def end_of(attempt: AttemptView, now: datetime) -> datetime | None:
    """Return its end: now if it runs or waits, its start if it is due later."""
    if attempt.outcome in ("running", "waiting"):
        return now
    return attempt.started_at if attempt.outcome == "due" else attempt.ended_at


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (end - start).total_seconds())
