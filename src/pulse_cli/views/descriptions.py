"""The lines in which one thing is described to people: facts, headings, indented text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pulse_cli.text import printable
from pulse_cli.text.moments import full
from pulse_cli.views.tables import QUIET, Cell, Line


def facts(*known: tuple[str, str | datetime | None], present: datetime) -> Iterator[Line]:
    """Yield a line for each fact that there is, labels on the left."""
    told = [(label, value) for label, value in known if value not in (None, "")]
    width = max((len(label) for label, _ in told), default=0)
    for label, value in told:
        text = full(value, present) if isinstance(value, datetime) else printable.one_line(str(value))
        yield [Cell(f"  {printable.one_line(label):<{width}}  ", QUIET), Cell(text)]


def heading(title: str) -> Line:
    return [Cell(title, "bold")]


def blank() -> Line:
    return []


def indented(text: str, style: str = "") -> Iterator[Line]:
    """Yield text of several lines below its heading."""
    for line in text.splitlines():
        yield [Cell(f"  {line}", style)]
