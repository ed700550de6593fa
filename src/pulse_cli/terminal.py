"""The terminal: times and counts as it shows them, tables that fit its width, hints, and progress.

In a table that does not fit, columns shrink first, then the least important ones are dropped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import click

from pulse_cli import tuning
from pulse_text import printable, times
from pulse_text.times import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.status import Status
    from rich.text import Text

# ---------------------------------------------------------------- times and counts

_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = "▏▎▍▌▋▊▉█"
_EXACT_BELOW = 100_000


def compact(number: int) -> str:
    """Return a count in at most six characters: 99,999, 123k, 4.5M."""
    if abs(number) < _EXACT_BELOW:
        return f"{number:,}"
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= size:
            scaled = number / size
            # Cut, not rounded: 999,999 is not 1M.
            return f"{int(scaled)}{unit}" if abs(scaled) >= 10 else f"{int(scaled * 10) / 10:g}{unit}"
    raise AssertionError(number)


def sparkline(values: Sequence[int]) -> str:
    """Draw values over time, scaled from 0 to the largest."""
    largest = max(values, default=0)
    if not largest:
        return _BLOCKS[0] * len(values)
    return "".join(_BLOCKS[round(value / largest * (len(_BLOCKS) - 1))] for value in values)


def bar(value: int, largest: int, width: int) -> str:
    """Draw one value relative to the largest. A value above 0 is always visible."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(round(value / largest * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return _EIGHTHS[-1] * whole + (_EIGHTHS[rest - 1] if rest else "")


_clock: Callable[[], datetime] = times.now


def follow(clock: Callable[[], datetime]) -> None:
    """Take the present from this clock from now on."""
    global _clock
    _clock = clock


def now() -> datetime:
    """Return the present, which ages are relative to: by the server's clock once it has answered."""
    return _clock()


_NOTICEABLE = timedelta(seconds=1)


def ago(moment: datetime, present: datetime) -> str:
    """Return a moment relative to now: 3m ago, in 2h, now."""
    span = present - moment
    if abs(span) < _NOTICEABLE:
        return "now"
    # Whole seconds: tenths would show how long the answer took.
    rounded = timedelta(seconds=round(abs(span).total_seconds()))
    return f"{format_duration(rounded)} ago" if span > timedelta(0) else f"in {format_duration(rounded)}"


def age(moment: datetime | None, present: datetime) -> str:
    """Return how long something has lasted: 3m, or – if it has not begun."""
    if moment is None:
        return "–"
    # Whole seconds, as in `ago`. Never negative: the time of the server is known to the tenth of a second.
    return format_duration(timedelta(seconds=max(round((present - moment).total_seconds()), 0)))


def local(moment: datetime) -> str:
    """Return a moment in the time zone of this machine."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def full(moment: datetime, present: datetime) -> str:
    """Return a moment in both forms: the time, and how long ago."""
    return f"{local(moment)} ({ago(moment, present)})"


# ---------------------------------------------------------------- tables

GAP = 2
QUIET = "bright_black"
"""The style of secondary text."""
# Paused, or worth a look: one color for each meaning, as in the dashboard. Red is what fails or is gone.
WARNING = "yellow"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    shortest: int | None = None
    """It may shrink to this width, with … in cut cells; None: it never shrinks."""
    drop: int = 0
    """If the table does not fit, the column with the highest number is dropped first; 0 is never dropped."""
    right: bool = False
    longest: int | None = None
    """The most without a terminal, where nothing else bounds it, with … in cut cells; None: any width."""
    optional: bool = False
    """Left out by `without_empty` if no row has text in it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its style. The text has no control characters."""

    text: str
    style: str = ""


Row = Sequence[Cell]
Line = list[Cell]


def lay_out(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[Line]:
    """Return the lines of a table, the header first, no wider than `width` if possible."""
    from rich.cells import cell_len

    widths = [
        max([cell_len(column.title), *(cell_len(row[at].text) for row in rows)])
        for at, column in enumerate(columns)
    ]
    kept = _fit(columns, widths, width)
    header = [Cell(column.title, "bold") for column in columns]
    return [_line(row, columns, kept) for row in [header, *rows]]


def _fit(columns: Sequence[Column], widths: list[int], width: int | None) -> dict[int, int]:
    """Return the kept columns and their widths."""
    kept = dict(enumerate(widths))
    if width is None:
        return {at: min(natural, columns[at].longest or natural) for at, natural in kept.items()}
    least = {at: min(natural, columns[at].shortest or natural) for at, natural in kept.items()}
    while _total(least) > width and any(columns[at].drop for at in least):
        dropped = max(least, key=lambda at: columns[at].drop)
        del least[dropped], kept[dropped]
    # Shrink the widest column that can still shrink.
    while _total(kept) > width:
        shrinkable = [at for at in kept if kept[at] > least[at]]
        if not shrinkable:
            break
        kept[max(shrinkable, key=lambda at: kept[at])] -= 1
    return kept


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _line(row: Row, columns: Sequence[Column], kept: dict[int, int]) -> Line:
    line: Line = []
    last = max(kept)
    for at, width in kept.items():
        text = cut(row[at].text, width)
        padding = " " * (width - _cells(text))
        if columns[at].right:
            line.append(Cell(padding))
        line.append(Cell(text, row[at].style))
        if at != last:
            line.append(Cell(("" if columns[at].right else padding) + " " * GAP))
    return line


def without_empty(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[Column], list[Row]]:
    """Return the table without the optional columns that have no text."""
    kept = [
        at for at, column in enumerate(columns) if not column.optional or any(row[at].text for row in rows)
    ]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def cut(text: str, width: int) -> str:
    """Return the text cut to this many cells, with … if it was cut."""
    from rich.cells import set_cell_size

    if _cells(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def cut_line(line: Line, width: int) -> Line:
    """Return the line cut to this many cells, with … if it was cut."""
    kept: Line = []
    for cell in line:
        left = width - line_width(kept)
        if _cells(cell.text) > left:
            return [*kept, Cell(cut(cell.text, left), cell.style)] if left > 0 else kept
        kept.append(cell)
    return kept


def line_width(line: Line) -> int:
    """Return the width of the line in cells."""
    return sum(_cells(cell.text) for cell in line)


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


# ---------------------------------------------------------------- the terminal itself


def table_width() -> int | None:
    """Return the width of the terminal; None, which means any width, if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def can_redraw() -> bool:
    """True if printed lines can be replaced."""
    return sys.stdout.isatty() and not _is_dumb()


def hint(sentence: str) -> None:
    """Print a hint to standard error."""
    click.echo(printable.lines(sentence), err=True)


def print_lines(lines: Iterable[Line], *, stderr: bool = False) -> None:
    """Print lines, with colors if the output is a terminal that allows them."""
    if not has_colors(stderr=stderr):
        for line in lines:
            click.echo("".join(cell.text for cell in line).rstrip(), err=stderr)
        return
    console = make_console(stderr=stderr)
    for line in lines:
        console.print(styled(line), soft_wrap=True)


def styled(line: Line) -> Text:
    """Return a line as text for rich."""
    from rich.text import Text

    text = Text()
    for cell in line:
        text.append(cell.text, cell.style or None)
    text.rstrip()
    return text


def has_colors(*, stderr: bool = False) -> bool:
    """True if the output is a terminal that shows colors, and NO_COLOR is not set."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and not _is_dumb()


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged: no highlighting, markup or emoji."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


# ---------------------------------------------------------------- progress


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
