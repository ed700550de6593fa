"""The progress of a job: a bar, its text, and about how long the rest takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse import HeldJob, JobInfo, JobStatus, Progress
from pulse_text import printable
from pulse_text.progress import percent, summary, time_left
from pulse_ui.views import words

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ProgressView:
    share: float | None
    """In percent, for the bar. None: not known."""
    percent: str
    text: str
    rest: str
    """About how long the job still takes. Empty if it does not run, or if that cannot be said."""
    attempt: int | None
    """The attempt that reported it, unless it is the one that runs."""
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


def progress_words(job: JobInfo | HeldJob) -> str:
    """Return the progress of a running job in a few words, for a list. Empty if there is none."""
    progress = job.progress
    if progress is None or (isinstance(job, JobInfo) and job.status is not JobStatus.RUNNING):
        return ""
    # Without an estimate, so that no time is needed.
    return printable.one_line(summary(progress, progress.reported_at or datetime.min, runs=False))


def _rest(progress: Progress, now: datetime) -> str:
    left = time_left(progress, now)
    if left is None:
        return ""
    if left < _MINUTE:
        return "less than a minute left"
    return f"about {words.span(round(left / _MINUTE) * 60)} left"
