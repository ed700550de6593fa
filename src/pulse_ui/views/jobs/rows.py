"""One job as a row of a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pulse import JobInfo, JobStatus, TopicInfo
from pulse_text import printable, statuses
from pulse_text.steps import signals_in_a_line
from pulse_ui.views.jobs.progress import progress_words

_RAN_TO_THE_END = (JobStatus.COMPLETED, JobStatus.DEAD_LETTERED)
_COUNTED = ("RUNNING", "DEAD_LETTERED", "CANCELED")
"""The other statuses are not counted: pending and retrying only together, as ready or waiting."""
_LONGEST_LINE = 300
_LONGEST_SIGNAL = 40


@dataclass(frozen=True, slots=True)
class JobRow:
    job: JobInfo
    what: str
    """due, ready, started, ended, or what it waits for."""
    when: datetime | None
    """The moment of `what`, if it has one."""
    took: float | None
    """The run time of the last attempt in seconds; None if it did not end."""
    error: str
    """The summary of the last error, unless the job completed."""
    worker: str
    progress: str
    """Of a running job, in a few words."""


def job_rows(jobs: Iterable[JobInfo], now: datetime) -> list[JobRow]:
    return [_row(job, now) for job in jobs]


def _row(job: JobInfo, now: datetime) -> JobRow:
    if job.status in statuses.WAITING:
        is_due = job.next_run_at is None or job.next_run_at <= now
        if job.waits_for:
            what, when = f"waits for {signals_in_a_line(job.waits_for)[:_LONGEST_SIGNAL]}", None
        elif job.waits_for is not None:
            what, when = "sleeps, due", job.next_run_at
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
    return JobRow(job, what, when, took, error, worker, progress_words(job))


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


def status_tabs(topics: Iterable[TopicInfo], *, topic: str | None, is_counted: bool) -> Tabs:
    """Return a tab for each status, with the counts of one topic or of all."""
    of_these = [one for one in topics if topic is None or one.topic == topic]

    def total(name: str) -> int | None:
        return sum(getattr(one, name) for one in of_these) if is_counted else None

    counted = {status: total(status.lower()) for status in _COUNTED}
    tabs = [Tab(name, status, counted.get(status)) for status, name in statuses.NAMES.items()]
    return Tabs((Tab("All", ""), *tabs), total("ready"), total("waiting"))
