"""Transitions of jobs as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.views.jobs import status_cell
from pulse_cli.views.tables import QUIET, Cell, Line, cut_line, line_width
from pulse_text import printable

if TYPE_CHECKING:
    import pulse

FIELDS = ("at", "status", "topic", "job_id", "attempt", "worker_id", "error")
_STATUS_WIDTH = len("DEAD_LETTERED")
_INDENT = " " * len("00:00:00 ")


def transition_lines(changes: Sequence[pulse.Transition], width: int | None) -> Iterator[Line]:
    """Yield a line per transition, and a second one for an error that does not fit; None is any width."""
    for change in changes:
        line = _line(change)
        error = [Cell(printable.summary(change.error or ""), "red")] if change.error else []
        whole = [*line, Cell(": "), *error] if error else line
        if width is None or line_width(whole) <= width:
            yield whole
            continue
        yield cut_line(line, width)
        if error:  # an error that would be cut off gets its own line
            yield cut_line([Cell(_INDENT), *error], width)


def _line(change: pulse.Transition) -> Line:
    cell = status_cell(change.status)
    line = [
        Cell(_clock(change.at) + " ", QUIET),
        cell,
        Cell(" " * (_STATUS_WIDTH - len(cell.text) + 1)),
        Cell(change.job_id + " "),
        Cell(printable.one_line(change.topic), "bold"),
    ]
    if change.attempt:
        line.append(Cell(f" attempt {change.attempt}"))
    if change.worker_id:
        line.append(Cell(f" on {printable.one_line(change.worker_id)}", QUIET))
    return line


def _clock(moment: datetime | None) -> str:
    return "--:--:--" if moment is None else moment.astimezone().strftime("%H:%M:%S")
