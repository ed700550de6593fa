"""The audit as a table: which user changed what, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pulse_cli.output import Shape, View, fields_shape
from pulse_cli.terminal import QUIET, Cell, Column, Row, ago, compact, now
from pulse_text import printable

if TYPE_CHECKING:
    import pulse

_FIELDS = (
    "action_id at user role address method reason topic ids count outcome refusal asked changes can_undo"
)
# Of one column in a file or a pipe. A new schedule has twenty settings; JSON has them whole.
_LONGEST = 100


def audit_view() -> View[pulse.AuditEntry]:
    """Return the view of entries of the audit."""
    present = now()

    def row(entry: pulse.AuditEntry) -> Row:
        return [
            Cell("–" if entry.at is None else ago(entry.at, present)),
            Cell(printable.one_line(entry.user) or "–"),
            Cell(entry.method),
            Cell(compact(entry.count)),
            Cell(_what(entry)),
            Cell(printable.one_line(entry.refusal or entry.reason), "red" if entry.refusal else ""),
            Cell(entry.address, QUIET),
            Cell(entry.action_id, QUIET),
        ]

    columns = (
        Column("WHEN"),
        Column("USER", shortest=6),
        Column("ACTION"),
        Column("COUNT", drop=3, right=True),
        Column("WHAT", shortest=20, longest=_LONGEST),
        Column("REASON", shortest=12, longest=_LONGEST, drop=2, optional=True),
        Column("FROM", drop=5),
        Column("ID", drop=4),
    )
    fields = ("at", "user", "method", "outcome", "count", "topic", "reason", "address", "action_id")
    return View(columns, row, audit_shape, fields)


def audit_shape(entry: pulse.AuditEntry) -> Shape:
    """An entry of the audit."""
    return fields_shape(entry, _FIELDS)


def changes_text(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the changed settings: limits.limit 5 → 2."""
    return ", ".join(
        f"{name} {_value(change.get('old'))} → {_value(change.get('new'))}"
        for name, change in changes.items()
    )


def _what(entry: pulse.AuditEntry) -> str:
    """Return the workflow, the topic or the first id, and the settings that changed."""
    first = entry.ids[0] if entry.ids else ""  # of an action on a workflow the workflow: its jobs follow
    where = f"workflow {first}" if entry.method.endswith("Workflow") and first else entry.topic or first
    return printable.one_line("  ".join(filter(None, [where, changes_text(entry.changes)])))


def _value(value: Any) -> str:
    return (
        "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )
