"""How groups of dead letters look to people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.text import printable
from pulse_cli.text.moments import ago, now
from pulse_cli.views.output import View
from pulse_cli.views.shapes import dead_letter_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Row

if TYPE_CHECKING:
    import pulse

_COLUMNS = (
    Column("TOPIC", shortest=8),
    Column("COUNT", right=True),
    Column("FIRST", drop=2),
    Column("LAST", drop=1),
    Column("GROUP"),
    Column("ERROR", shortest=14),
)
_FIELDS = ("topic", "error_group", "count", "first_at", "last_at", "sample.id", "sample.last_error")


def dead_letter_view() -> View[pulse.DeadLetterGroup]:
    """Return how groups of dead letters are listed."""
    present = now()

    def row(group: pulse.DeadLetterGroup) -> Row:
        return [
            Cell(printable.one_line(group.topic)),
            Cell(f"{group.count:,}", "bold red"),
            Cell(_told(group.first_at, present), QUIET),
            Cell(_told(group.last_at, present)),
            Cell(group.error_group),
            Cell(printable.summary(group.sample.last_error or "")),
        ]

    return View(_COLUMNS, row, dead_letter_shape, _FIELDS)


def _told(moment: datetime | None, present: datetime) -> str:
    return "" if moment is None else ago(moment, present)
