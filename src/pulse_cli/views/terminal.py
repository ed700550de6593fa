"""The terminal, if there is one: its width, its colors, and printing to it."""

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
    """Return a console that adds nothing of its own to what it prints."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"
