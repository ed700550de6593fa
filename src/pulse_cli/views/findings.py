"""What needs attention, most harmful first, with the command that shows more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pulse_cli.output import View
from pulse_cli.terminal import QUIET, WARNING, Cell, Column, Line, Row
from pulse_cli.views.shapes import finding_shape
from pulse_text import printable

if TYPE_CHECKING:
    import pulse

_FIELDS = ("kind", "urgent", "topic", "worker_id", "sentence", "harm")
# The next command by kind, with {} for the topic. A later server may have kinds that are not here.
_NEXT: Mapping[str, str] = {
    "paused": "pulse dispatch status",
    "scheduler": "pulse schedules list",
    "dead": "pulse dead-letters --topic {}",
    "failing": "pulse jobs list --status RETRYING --topic {}",
    "starving": "pulse workers",
    "old": "pulse jobs list --status PENDING --topic {}",
    "limited": "pulse topics limits {}",
    "flood": "pulse lanes {}",
    "long": "pulse jobs list --status RUNNING --topic {}",
    "worker": "pulse workers --jobs",
    "silent": "pulse workers --jobs",
    "memory": "pulse workers",
}


def finding_view() -> View[pulse.Finding]:
    """Return the view of a list of findings."""
    columns = (Column(""), Column("FINDING", shortest=20), Column("NEXT", drop=1))

    def row(finding: pulse.Finding) -> Row:
        return [*_words(finding), Cell(_next(finding), QUIET)]

    return View(columns, row, finding_shape, _FIELDS)


def finding_lines(found: Sequence[pulse.Finding], most: int) -> Iterator[Line]:
    """Yield the first findings, and a line that counts the rest."""
    for finding in found[:most]:
        mark, words = _words(finding)
        yield [mark, Cell(f" {words.text}", words.style)]
    if len(found) > most:
        yield [Cell(f"… {len(found) - most:,} more need attention. See: pulse attention", QUIET)]


def _words(finding: pulse.Finding) -> tuple[Cell, Cell]:
    style = "bold red" if finding.urgent else WARNING
    subject = finding.topic or finding.worker_id
    words = f"{subject} {finding.sentence}" if subject else finding.sentence
    return Cell("✕" if finding.urgent else "!", style), Cell(printable.one_line(words))


def _next(finding: pulse.Finding) -> str:
    return printable.one_line(_NEXT.get(finding.kind, "").format(shlex.quote(finding.topic or "")))
