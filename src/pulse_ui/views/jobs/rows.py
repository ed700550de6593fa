"""One job as a row of a list, and its progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pulse import JobInfo, JobStatus, Progress, TopicInfo
from pulse_text import printable
from pulse_text.jobs import (
    STATUS_MARKS,
    STATUS_NAMES,
    WAITING,
    percent,
    signals_in_a_line,
    time_left,
)
from pulse_ui import words
from pulse_ui.words import progress_words

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
