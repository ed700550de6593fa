"""`pulse audit`: which user changed what, when and why."""

from __future__ import annotations

from datetime import datetime

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.inputs import once_option, paging_options, past_moment
from pulse_cli.output import collect, hint_at_more, output_here
from pulse_cli.views.audit import audit_view


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
