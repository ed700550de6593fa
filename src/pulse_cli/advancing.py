"""Shows how far a long action has come: a bar at a terminal, a line now and then in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pulse_cli import tuning
from pulse_cli.output import hint, make_console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Advance(Protocol):
    """Where an action says how far it has come."""

    def update(self, done: int) -> None: ...


@contextmanager
def advancing(total: int, what: str) -> Iterator[Advance]:
    """Show progress on standard error for the length of a block. `what` is what happens: cancelled."""
    if not sys.stderr.isatty():
        yield _Lines(total, what)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.completed:,} of {task.total:,} " + what)
    console = make_console(stderr=True)
    with Progress(BarColumn(), text, TimeRemainingColumn(), console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task("", total=total))


class _Lines:
    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._told = 0

    def update(self, done: int) -> None:
        if done - self._told >= self._total * tuning.PROGRESS_STEP:
            hint(f"{done:,} of {max(self._total, done):,} {self._what}")
            self._told = done


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: int) -> None:
        self._progress.update(self._task, completed=done)
