"""One job: as a row of a list, what happens to it next, its attempts on a time line, and its steps.

The time line is to scale with two exceptions: short ones stay visible, and a wait that would dwarf the rest
is shortened and marked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import pulse
from pulse import JobInfo, JobStatus, Progress, TopicInfo
from pulse_text import printable
from pulse_text.jobs import (
    STATUS_MARKS,
    STATUS_NAMES,
    WAITING,
    percent,
    signals_in_a_line,
    time_left,
    what_a_step_did,
)
from pulse_ui import tuning, words
from pulse_ui.words import progress_words, span

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ProgressView:
    share: float | None
    """In percent, for the bar. None: not known."""
    percent: str
    text: str
    rest: str
    """The estimated time left. Empty if the job does not run, or without an estimate."""
    attempt: int | None
    """The attempt that reported the progress; None for the running attempt."""
    reported_at: datetime | None
    cursor: str
    """JSON. Empty: none."""


def progress_view(job: JobInfo, now: datetime) -> ProgressView | None:
    """Return the progress of a job, or None if its handler reported nothing."""
    progress = job.progress
    if progress is None:
        return None
    is_current = job.status is JobStatus.RUNNING and progress.attempt == job.attempts
    return ProgressView(
        None if progress.fraction is None else round(progress.fraction * 100, 1),
        percent(progress),
        printable.one_line(progress.text),
        _rest(progress, now) if is_current else "",
        None if is_current else progress.attempt,
        progress.reported_at,
        "" if progress.cursor is None else json.dumps(progress.cursor, ensure_ascii=False, indent=2),
    )


def _rest(progress: Progress, now: datetime) -> str:
    left = time_left(progress, now)
    if left is None:
        return ""
    if left < _MINUTE:
        return "less than a minute left"
    return f"about {words.span(round(left / _MINUTE) * 60)} left"


@dataclass(frozen=True, slots=True)
class StateMark:
    """The state of a job as a mark: its status, or what it waits for in the middle of its work."""

    kind: str
    """The class of its color."""
    mark: str
    name: str
    """In a list."""
    whole: str
    """Where there is room."""


_SLEEPING = StateMark("suspended", "☾", "Sleeping", "Sleeping")
_READY = StateMark("pending", STATUS_MARKS["PENDING"], "Ready", "Ready to go on")


def state_mark(job: JobInfo, now: datetime) -> StateMark:
    """Return the mark of a job. A suspended one is RETRYING, but nothing went wrong."""
    if job.status in WAITING and job.waits_for is not None:
        if job.next_run_at is not None and job.next_run_at <= now:
            return _READY
        if not job.waits_for:
            return _SLEEPING
        signal = signals_in_a_line(job.waits_for)[:_LONGEST_SIGNAL]
        return StateMark("suspended", "⚑", "Waiting", f"Waiting for signal {signal}")
    name = STATUS_NAMES[job.status]
    return StateMark(job.status.lower(), STATUS_MARKS[job.status], name, name)


_RAN_TO_THE_END = (JobStatus.COMPLETED, JobStatus.DEAD_LETTERED)
_COUNTED = ("RUNNING", "DEAD_LETTERED", "CANCELED")
"""The other statuses are not counted: pending and retrying only together, as ready or waiting."""
_LONGEST_LINE = 300
_LONGEST_SIGNAL = 40


@dataclass(frozen=True, slots=True)
class JobRow:
    job: JobInfo
    state: StateMark
    what: str
    """due, ready, started, ended, or the reason to wait."""
    when: datetime | None
    """The moment of `what`, if it has one."""
    took: float | None
    """The run time of the last attempt in seconds; None if it did not end."""
    error: str
    """The summary of the last error, unless the job completed."""
    worker: str
    progress: str
    """Of a running job, in a few words."""


def is_ready(job: JobInfo, now: datetime) -> bool:
    """True if a waiting job is due and waits for no other job: something else keeps it."""
    is_due = job.next_run_at is not None and job.next_run_at <= now
    return job.status in WAITING and is_due and not job.waits_for_jobs


def job_rows(
    jobs: Iterable[JobInfo], now: datetime, reasons: Mapping[str, str] | None = None
) -> list[JobRow]:
    """Return the rows. `reasons` has by id, in a few words, why ready jobs do not run."""
    rows = [_row(job, now) for job in jobs]
    known = reasons or {}
    return [replace(row, what=known[row.job.id]) if row.job.id in known else row for row in rows]


def _row(job: JobInfo, now: datetime) -> JobRow:
    if job.status in WAITING:
        is_due = job.next_run_at is None or job.next_run_at <= now
        if job.waits_for_jobs:
            what, when = "waits for other jobs", None
        elif job.waits_for and (not is_due or job.next_run_at is None):
            what, when = f"for signal {signals_in_a_line(job.waits_for)[:_LONGEST_SIGNAL]}", None
        else:
            what, when = ("ready", None) if is_due else ("due", job.next_run_at)
    elif job.status is JobStatus.RUNNING:
        what, when = "started", job.started_at
    else:
        what, when = "ended", job.finished_at
    took = None
    if job.status in _RAN_TO_THE_END and job.started_at is not None and job.finished_at is not None:
        took = max(0.0, (job.finished_at - job.started_at).total_seconds())
    error = (
        "" if job.status is JobStatus.COMPLETED else printable.summary(job.last_error or "")[:_LONGEST_LINE]
    )
    worker = printable.one_line(job.worker_id or "")
    return JobRow(job, state_mark(job, now), what, when, took, error, worker, progress_words(job))


@dataclass(frozen=True, slots=True)
class Tab:
    """One status, with its count if known."""

    name: str
    status: str
    """Empty: all statuses."""
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Tabs:
    tabs: tuple[Tab, ...]
    ready: int | None
    """Pending or retrying, and due. They are counted together."""
    waiting: int | None
    """Pending or retrying, and not due yet."""
    waiting_for_jobs: int | None
    """Pending, and in workflows: waiting for other jobs."""


def status_tabs(topics: Sequence[TopicInfo], *, is_counted: bool) -> Tabs:
    """Return a tab for each status, with its count over these topics."""

    def total(name: str) -> int | None:
        return sum(getattr(one, name) for one in topics) if is_counted else None

    counted = {status: total(status.lower()) for status in _COUNTED}
    tabs = [Tab(name, status, counted.get(status)) for status, name in STATUS_NAMES.items()]
    return Tabs((Tab("All", ""), *tabs), total("ready"), total("waiting"), total("waiting_for_jobs"))


# ---------------------------------------------------------------- outlook
# What happens to a job next, in one sentence.

_LONGEST_REASON = 300
# Causes that do not end by the normal course of the queue.
_ALARMING = frozenset(
    {"dispatch_paused", "topic_paused", "topic_held", "no_worker", "workers_quiet"}
    | {"worker_gone", "worker_silent", "locked", "overdue"}
)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A sentence, optionally with a moment that the browser keeps up to date."""

    before: str
    moment: datetime | None = None
    after: str = ""
    tone: str = "info"
    """info, good, warn or bad."""
    remedy: str = ""
    """What must happen or be done."""


def outlook(job: pulse.JobInfo, now: datetime, why: pulse.Explanation | None = None) -> Outlook:
    """Return what happens next.

    `why` is the server's explanation, of an unfinished job. It is None if the visitor may not ask, or if the
    server is older or cannot answer.
    """
    match job.status:
        case pulse.JobStatus.PENDING | pulse.JobStatus.RETRYING:
            return _of_waiting(job, now) if why is None else _explained(why, now)
        case pulse.JobStatus.RUNNING:
            return _explained(why, now) if why is not None and why.cause else _of_running(job, now)
        case pulse.JobStatus.COMPLETED:
            return Outlook(f"Completed by attempt {job.attempts}.", tone="good")
        case pulse.JobStatus.CANCELED:
            return _of_canceled(job)
        case _:
            return _of_dead(job)


def _explained(why: pulse.Explanation, now: datetime) -> Outlook:
    sentence, remedy = printable.one_line(why.sentence), printable.one_line(why.remedy)
    tone = "warn" if why.cause in _ALARMING else "info"
    if why.expected_at is None or why.expected_at <= now:
        return Outlook(sentence, tone=tone, remedy=remedy)
    return Outlook(f"{sentence} Expected", why.expected_at, ".", tone, remedy)


def _of_waiting(job: pulse.JobInfo, now: datetime) -> Outlook:
    if job.waits_for_jobs:
        return Outlook("Waits for other jobs of its workflow.")
    if job.waits_for is not None:
        return _of_suspended(job, job.waits_for)
    if job.next_run_at is not None and job.next_run_at > now:
        return Outlook(f"{_next_attempt(job)} is due", job.next_run_at, ".")
    return Outlook(f"Waiting for a worker to run {_next_attempt(job).lower()}.")


def _of_suspended(job: pulse.JobInfo, signal: str) -> Outlook:
    if not signal:
        return Outlook("Sleeps: it goes on", job.next_run_at, ".")
    waits = f"Waits for the signal “{signals_in_a_line(signal)[:_LONGEST_REASON]}”"
    if job.next_run_at is None:
        return Outlook(f"{waits}.")
    return Outlook(f"{waits}, and goes on without it", job.next_run_at, ".")


def _of_running(job: pulse.JobInfo, now: datetime) -> Outlook:
    is_last = job.attempts >= job.max_attempts
    then = "it is dead-lettered" if is_last else f"attempt {job.attempts + 1} of {job.max_attempts} follows"
    if job.lease_until is not None and job.lease_until < now:
        silent = "Its worker sends no heartbeats: the lease expired"
        return Outlook(silent, job.lease_until, f", so {then} soon.", "warn")
    return Outlook(f"Running. If it fails, {then}{': this is the last attempt' if is_last else ''}.")


def _of_canceled(job: pulse.JobInfo) -> Outlook:
    last = job.history[-1] if job.history else None
    reason = job.last_error or ""
    if last is not None and last.outcome != "canceled" and reason.startswith(last.error):
        reason = ""  # the error of the previous attempt
    elif last is not None and last.outcome == "canceled":
        reason = last.error
    given = f" “{printable.one_line(reason)[:_LONGEST_REASON]}”." if reason else ""
    return Outlook(f"Canceled{':' if given else '.'}{given} It does not run unless it is retried.")


def _of_dead(job: pulse.JobInfo) -> Outlook:
    last = job.history[-1].outcome if job.history else ""
    if last == "discarded":
        why = "its handler discarded it"
    elif last == "snoozed":
        why = f"it was snoozed {words.count(job.snoozes)} times, which is the limit"
    elif last == "suspended":
        why = "it has as many steps as a job may have"
    elif last == "lease_expired" and job.attempts < job.max_attempts:
        why = f"{words.plural(job.crashes, 'attempt')} ended in a lost lease, which is the limit"
    else:
        why = "its only attempt failed" if job.attempts == 1 else f"all {job.attempts} attempts failed"
    return Outlook(f"Dead-lettered: {why}. It does not run again unless it is retried.", tone="bad")


def _next_attempt(job: pulse.JobInfo) -> str:
    return f"Attempt {job.attempts + 1} of {job.max_attempts}"


# ---------------------------------------------------------------- time line and steps

_SHORTEST_ATTEMPT = 1.2
_SHORTEST_WAIT = 0.2
"""The minimum widths, in percent."""
_OUT_OF_SCALE = 8.0
"""A wait that is this many times longer than all shorter ones together is shortened."""
_SHORTENED_TO = 0.6


@dataclass(frozen=True, slots=True)
class Timeline:
    attempts: tuple[AttemptView, ...]
    """Oldest first; an upcoming one is the last."""
    left_out: int
    """How many early attempts are no longer stored."""
    begins_at: datetime | None
    ends_at: datetime | None

    @property
    def made(self) -> tuple[AttemptView, ...]:
        """The attempts that have started, newest first."""
        return tuple(attempt for attempt in reversed(self.attempts) if not attempt.is_to_come)

    @property
    def is_thinned(self) -> bool:
        """Whether attempts between the stored ones are missing: snoozed or suspended ones in a row."""
        numbers = [attempt.number for attempt in self.attempts]
        return any(later > earlier + 1 for earlier, later in pairwise([self.left_out, *numbers]))

    @property
    def queue_wait(self) -> float | None:
        """Seconds before the first attempt, if it is stored."""
        is_stored = bool(self.attempts) and self.attempts[0].number == 1 and not self.left_out
        return self.attempts[0].waited if is_stored else None

    @property
    def is_shortened(self) -> bool:
        return any(attempt.wait_is_shortened for attempt in self.attempts)

    @property
    def ran(self) -> float:
        """The run time of all stored attempts in seconds."""
        return sum(attempt.ran or 0.0 for attempt in self.attempts)


def timeline(job: pulse.JobInfo, now: datetime) -> Timeline:
    """Return the attempts of a job, placed on the time line."""
    attempts, left_out = attempts_of(job, now)
    begins_at = None if left_out else job.submitted_at
    if begins_at is None and attempts:
        begins_at = attempts[0].started_at
    ends_at = max((end for one in attempts if (end := end_of(one, now)) is not None), default=begins_at)
    return Timeline(tuple(_placed(attempts)), left_out, begins_at, ends_at)


def _placed(attempts: Sequence[AttemptView]) -> Iterable[AttemptView]:
    waits = [attempt.waited or 0.0 for attempt in attempts]
    runs = [attempt.ran or 0.0 for attempt in attempts]
    drawn = shortened(waits, sum(runs))
    total = sum(drawn) + sum(runs)
    # Each has its minimum width, and a share of the rest by its duration.
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
    """Return the drawn length of each wait, with disproportionate ones shortened."""
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


_MARKS = {"step": "✓", "sleep": "◷", "signal": "✉"}


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step."""

    name: str
    mark: str
    what: str
    moment: datetime | None
    """When it was stored, or since when it waits."""
    took: float | None
    """Seconds that it ran, of a step."""
    size: int
    is_waiting: bool


def step_rows(steps: Sequence[pulse.StepInfo], now: datetime) -> list[StepRow]:
    """Return the steps in their order."""
    return [_step_row(step, now) for step in steps]


def _step_row(step: pulse.StepInfo, now: datetime) -> StepRow:
    is_step = step.kind is pulse.StepKind.STEP
    took = None
    if is_step and step.started_at is not None and step.stored_at is not None:
        took = max(0.0, (step.stored_at - step.started_at).total_seconds())
    is_asleep = step.kind is pulse.StepKind.SLEEP and step.until is not None and step.until > now
    return StepRow(
        name=printable.one_line(step.name),
        mark=_MARKS[step.kind],
        what=what_a_step_did(step, now, lambda rest: span(rest.total_seconds())),
        moment=step.stored_at or step.started_at,
        took=took,
        size=step.size,
        is_waiting=is_asleep or step.stored_at is None,
    )


# ---------------------------------------------------------------- attempts
# Past, running or upcoming: outcome, wait and run time.

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
