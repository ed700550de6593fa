"""`pulse jobs export`: finished jobs as JSON Lines."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs.times import past_moment
from pulse_cli.inputs.values import complete_status, status


@click.command(
    "export",
    cls=Command,
    examples="""
        pulse jobs export --before 2030-02-01 --file january.jsonl
        pulse jobs export --since 2030-01-01 --before 2030-02-01 | gzip > january.jsonl.gz
        pulse jobs export --before 1d --topic audit --status COMPLETED --file audit.jsonl
        pulse jobs export --before 1d | jq -r 'select(.attempts > 1).id'
    """,
)
@click.option(
    "--before",
    type=past_moment,
    metavar="TIME",
    help="Only jobs that finished before this time: 1d for a day ago, or 2030-01-31T09:00. "
    "Up to a few seconds ago if not given.",
)
@click.option(
    "--since", type=past_moment, metavar="TIME", help="Only jobs that finished at this time or later."
)
@click.option("--topic", "topics", multiple=True, help="Only jobs on this topic; repeatable.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=status,
    shell_complete=complete_status,
    help="Only jobs in this status; repeatable: COMPLETED, DEAD_LETTERED, CANCELED.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist yet; standard output if not given.",
)
@click.option(
    "--after",
    "cursor",
    metavar="CURSOR",
    help="Continue an export that ended early, with the cursor that it printed and the same options. "
    "Appends to --file.",
)
def export(
    before: datetime | None,
    since: datetime | None,
    topics: tuple[str, ...],
    statuses: tuple[str, ...],
    path: Path | None,
    cursor: str | None,
) -> None:
    """Export finished jobs as JSON Lines, with their payloads, attempts and steps.

    One object per line, as in `pulse jobs get -o json`, in the order of submission. A payload that is not
    JSON is in payload_base64. Each job is exported once at the most, and none that is there throughout is
    left out.
    An export that ends early prints the cursor to continue with.
    """
    from pulse_cli.loops.export import Export

    with connected() as client, Export(path, is_continued=cursor is not None) as export:
        export.write(
            client.export_jobs(
                before=before,
                since=since,
                topics=topics or None,
                statuses=statuses or None,
                cursor=cursor,
            )
        )
