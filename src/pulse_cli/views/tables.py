"""Tables that fit the terminal: columns shrink first, then the least important ones are dropped.

And the terminal itself: its width, and hints on standard error.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pulse_text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

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
