"""`pulse audit`: which user changed what, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.inputs import once_option, paging_options, past_moment
from pulse_cli.output import Shape, View, collect, fields_shape, hint_at_more, output_here
from pulse_cli.terminal import QUIET, Cell, Column, Row, ago, compact, now
from pulse_text import printable

if TYPE_CHECKING:
    import pulse


@click.command(
    cls=Command,
    short_help="Show which user changed what, when and why.",
    examples="""
        pulse audit --topic orders --since 1d
        pulse audit --by ann --method CancelJobs
        pulse audit --id 0199c0de-0000-7000-8000-000000000001
        pulse audit --refused
        pulse audit --all --output json | jq -r '.[] | select(.changes != {}).changes'
    """,
)
@once_option("--by", metavar="USER", help="Only changes of this user.")
@once_option("--method", metavar="RPC", help="Only this action, such as CancelJobs or SetTopic.")
@once_option("--topic", help="Only changes of this topic, and of its jobs and schedules.")
@once_option("--id", "subject", metavar="ID", help="Only changes of this job, schedule, workflow or action.")
@click.option(
    "--since", type=past_moment, metavar="TIME", help="Only changes since this time: 2h for two hours ago."
)
@click.option("--refused", is_flag=True, help="Only calls that were refused for want of a permission.")
@paging_options
def audit(
    by: str | None,
    method: str | None,
    topic: str | None,
    subject: str | None,
    since: datetime | None,
    refused: bool,
    limit: int,
    everything: bool,
    cursor: str | None,
) -> None:
    """Show the changes that callers made, newest first: who, when, from where, why, and what changed.

    A bulk action is one entry. Settings have their old and new values. Unchanged declarations of workers
    are not changes. Entries are kept for 90 days, unless the server is set otherwise.
    """
    with connected() as client:
        found, more = collect(
            lambda size, at: client.audit(
                user=by,
                method=method,
                topic=topic,
                id=subject,
                since=since,
                refused=refused,
                limit=size,
                cursor=at,
            ),
            limit,
            everything,
            cursor,
        )
    output_here().show_list(found, audit_view(), "There are no such changes.")
    hint_at_more(more)


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
