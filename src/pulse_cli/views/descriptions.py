"""One thing described in lines: facts, headings, indented text, payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime

from pulse_cli.text import ago, full, local
from pulse_cli.views.shapes import payload_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Line, Row, lay_out
from pulse_text import printable

_NO_REMARK = Cell("")
_TIMELINE = (Column(""), Column("", right=True), Column(""), Column(""))


def facts(*known: tuple[str, str | datetime | None], present: datetime) -> Iterator[Line]:
    """Yield a line for each fact with a value, labels on the left."""
    present_facts = [(label, value) for label, value in known if value not in (None, "")]
    width = max((len(label) for label, _ in present_facts), default=0)
    for label, value in present_facts:
        text = full(value, present) if isinstance(value, datetime) else printable.one_line(str(value))
        yield [Cell(f"  {printable.one_line(label):<{width}}  ", QUIET), Cell(text)]


def heading(title: str) -> Line:
    return [Cell(title, "bold")]


def blank() -> Line:
    return []


def event(moment: datetime | None, present: datetime, text: str, remark: Cell = _NO_REMARK) -> Row:
    """Return an event for a `timeline`."""
    when, relative = ("–", "") if moment is None else (local(moment), ago(moment, present))
    return [Cell(f"  {when}", QUIET), Cell(relative, QUIET), Cell(printable.one_line(text)), remark]


def timeline(events: Iterable[Row]) -> list[Line]:
    """Return a line for each event."""
    return lay_out(_TIMELINE, list(events), None)[1:]


def indented(text: str, style: str = "") -> Iterator[Line]:
    """Yield the lines of a text, indented."""
    for line in text.splitlines():
        yield [Cell(f"  {line}", style)]


def payload_text(payload: bytes) -> str:
    """Return a payload as text: JSON indented, other text unchanged, bytes in hexadecimal."""
    shape = payload_shape(payload)
    if shape["payload_base64"] is None:
        return printable.in_json(json.dumps(shape["payload"], ensure_ascii=False, indent=2))
    try:
        return printable.lines(payload.decode())
    except UnicodeDecodeError:
        shown = payload[:256]
        more = f" … ({len(payload)} bytes)" if len(payload) > len(shown) else ""
        return shown.hex(" ") + more
