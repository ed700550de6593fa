"""`pulse dead-letters`: what jobs died of, in groups."""

from __future__ import annotations

import click

from pulse_cli import tuning
from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.views.dead_letters import dead_letter_view
from pulse_cli.views.output import output_here
from pulse_cli.views.terminal import hint


@click.command(
    "dead-letters",
    cls=Command,
    short_help="Show what jobs died of, in groups.",
    examples="""
        pulse dead-letters
        pulse dead-letters --topic send-email
        pulse dead-letters --output json | jq -r '.[] | select(.count > 100).sample.last_error'
        pulse jobs list --topic send-email --error-group 86194952523c
        pulse jobs retry --topic send-email --error-group 86194952523c
    """,
)
@click.option("--topic", help="Only jobs on this topic.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=tuning.LARGEST_PAGE),
    default=tuning.PAGE_SIZE,
    show_default=True,
    metavar="N",
    help="The most groups to show.",
)
def dead_letters(topic: str | None, limit: int) -> None:
    """Show the dead letters in groups: those of one topic that died of the same error.

    Errors are the same if they differ in numbers, ids, quoted values and the like only. The group that
    somebody joined last comes first. `none` are those that died before there were groups.
    """
    with connected() as client:
        found = client.dead_letters(topic=topic, limit=limit)
    on = f" on {topic}" if topic else ""
    view = dead_letter_view()
    output_here().show_list(
        list(found), view.without("TOPIC") if topic else view, f"There are no dead letters{on}."
    )
    if found.groups_left_out:
        hint(f"{found.groups_left_out:,} more groups are not shown: add a larger --limit, or a --topic.")
