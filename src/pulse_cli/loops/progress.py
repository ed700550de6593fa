"""Progress on standard error, apart from the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pulse_cli import tuning
from pulse_cli.views.tables import cut, hint, make_console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.status import Status


class Bar(Protocol):
    """Receives the progress of an action."""

    def update(self, done: int) -> None: ...


@contextmanager
def progress_bar(total: int | None, what: str) -> Iterator[Bar]:
    """Show a bar for the length of a block; in a pipe, a line at intervals.

    `what` is a word such as canceled. None is an unknown total.
    """
    if not sys.stderr.isatty():
        yield _Lines(total, what)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    of = "" if total is None else " of {task.total:,}"
    text = TextColumn("{task.completed:,}" + of + f" {what}")
    console = make_console(stderr=True)
    with Progress(BarColumn(), text, TimeRemainingColumn(), console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task("", total=total))


def of_total(done: int, total: int | None) -> str:
    """Return the progress: 500 of 10,000, or 500."""
    return f"{done:,}" if total is None else f"{done:,} of {max(total, done):,}"


class Spinner(Protocol):
    """Receives the text to show while a command waits."""

    def update(self, status: str) -> None: ...


@contextmanager
def spinner() -> Iterator[Spinner]:
    """Show a spinner with a text for the length of a block; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    console = make_console(stderr=True)
    with console.status("waiting") as status:
        yield _Spinner(status, console.width)


class _Lines:
    def __init__(self, total: int | None, what: str) -> None:
        self._total = total
        self._step = tuning.PROGRESS_JOBS if total is None else total * tuning.PROGRESS_STEP
        self._what = what
        self._shown = 0

    def update(self, done: int) -> None:
        if done - self._shown >= self._step:
            hint(f"{of_total(done, self._total)} {self._what}")
            self._shown = done


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


class _Silent:
    def update(self, status: str) -> None:
        pass


class _Spinner:
    def __init__(self, status: Status, width: int) -> None:
        self._status = status
        self._width = width

    def update(self, status: str) -> None:
        from rich.text import Text

        self._status.update(Text(cut(status, self._width - 4)))
