"""The terminal, if there is one: how wide it is, whether it has colors, how lines are printed on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pulse_cli.views.tables import Line
from pulse_text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def table_width() -> int | None:
    """Return how wide a table may be: as wide as the terminal; None, which is any width, if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def can_redraw() -> bool:
    """True if what was printed can be replaced."""
    return sys.stdout.isatty() and not _is_dumb()


def hint(sentence: str) -> None:
    """Tell people something that is not a result."""
    click.echo(printable.lines(sentence), err=True)


def print_lines(lines: Iterable[Line], *, stderr: bool = False) -> None:
    """Print lines, with colors if that goes to a terminal and nobody minds."""
    if not has_colors(stderr=stderr):
        for line in lines:
            click.echo("".join(cell.text for cell in line).rstrip(), err=stderr)
        return
    console = make_console(stderr=stderr)
    for line in lines:
        console.print(styled(line), soft_wrap=True)


def styled(line: Line) -> Text:
    """Return a line as rich prints it."""
    from rich.text import Text

    text = Text()
    for cell in line:
        text.append(cell.text, cell.style or None)
    text.rstrip()
    return text


def has_colors(*, stderr: bool = False) -> bool:
    """True if the output is a terminal that shows colors, and NO_COLOR does not forbid them."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and not _is_dumb()


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that adds nothing of its own to what it prints."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"
