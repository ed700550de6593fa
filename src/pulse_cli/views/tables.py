"""Tables that fit the terminal: columns shrink first, then the least important ones are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
QUIET = "bright_black"
"""The style of secondary text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    shortest: int | None = None
    """It may shrink to this width, with … in cut cells; None: it never shrinks."""
    drop: int = 0
    """If the table does not fit, the column with the highest number is dropped first; 0 is never dropped."""
    right: bool = False


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
        return kept
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
    """Return the table without the columns that have neither a title nor text."""
    kept = [at for at, column in enumerate(columns) if column.title or any(row[at].text for row in rows)]
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
