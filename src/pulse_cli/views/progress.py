"""The progress of jobs: a bar, and the words beside it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.terminal import QUIET, Cell, Column, Line, Row, bar, lay_out
from pulse_text import printable
from pulse_text.jobs import percent, rest, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulse

_BAR_WIDTH = 20
_STEPS = 1000
_COLUMNS = (
    Column("RUNNING", shortest=8),
    Column("TOPIC", shortest=8, drop=2),
    Column("", drop=3),
    Column("DONE", right=True),
    Column("TEXT", shortest=10, drop=1),
    Column("LEFT", drop=4),
)


def progress_fact(job: pulse.JobInfo, present: datetime) -> str:
    """Return the progress of a job in a line, with its bar."""
    progress = job.progress
    if progress is None:
        return ""
    runs = str(job.status) == "RUNNING"
    text = summary(progress, present, runs=runs and progress.attempt == job.attempts)
    if runs and progress.attempt != job.attempts:
        text += f" (attempt {progress.attempt})"
    return f"{progress_bar(progress)} {text}".strip()


def progress_bar(progress: pulse.Progress) -> str:
    """Return the bar, as wide as if it were full. Empty if the share is not known."""
    if progress.fraction is None:
        return ""
    drawn = bar(int(progress.fraction * _STEPS), _STEPS, _BAR_WIDTH)
    return f"▕{drawn:<{_BAR_WIDTH}}▏"


def progress_lines(workers: Sequence[pulse.WorkerInfo], present: datetime, width: int | None) -> list[Line]:
    """Return a table of the held jobs that have progress, the nearest to its end first. Empty if none has."""
    found = [(job, job.progress) for worker in workers for job in worker.held if job.progress is not None]
    found.sort(key=lambda pair: -(pair[1].fraction or 0.0))
    rows: list[Row] = [
        [
            Cell(job.id),
            Cell(printable.one_line(job.topic)),
            Cell(progress_bar(progress), "green"),
            Cell(percent(progress)),
            Cell(printable.one_line(progress.text)),
            Cell(rest(progress, present) if progress.attempt == job.attempt else "", QUIET),
        ]
        for job, progress in found
    ]
    return lay_out(_COLUMNS, rows, width) if rows else []
