"""`pulse attention`, `servers`, `top` and `dead-letters`: the state of the queue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.connection import connected
from pulse_cli.declaring import Command
from pulse_cli.inputs import WholeNumber, duration_from, once_option
from pulse_cli.jobs.views import job_shape
from pulse_cli.output import Shape, View, fields_shape, output_here
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Row,
    age,
    ago,
    hint,
    now,
)
from pulse_text import printable

if TYPE_CHECKING:
    import pulse


@click.command(
    cls=Command,
    short_help="Show the servers and their workers.",
    examples="""
        pulse servers
        pulse servers --output json | jq -r '.[] | select(.silent_since).name'
    """,
)
def servers() -> None:
    """Show the servers that share the database: their address, version, age and number of workers.

    A server that has stopped reporting is dead, or cut off from the database. It is shown for an hour.
    """
    with connected() as client:
        found = client.servers(silent=True)
    output_here().show_list(found, server_view(), "No server has reported within the last hour.")


@click.command(
    cls=Command,
    short_help="Show what needs attention, by harm.",
    examples="""
        pulse attention
        pulse attention --output json | jq -r '.[] | select(.urgent).topic'
    """,
)
def attention() -> None:
    """Show what needs attention: trouble of the whole queue, then one line per topic or worker.

    The most harmful comes first. Harm is the number of jobs per minute that were dead-lettered, failed or
    late in the last five minutes. A dead-lettered job counts 100, a failed attempt 10, a late job 1. Topics
    that wait for a pause or for their own limits do no harm, and come last.
    """
    from pulse_cli.top import finding_view

    with connected() as client:
        found = client.findings(limit=tuning.LARGEST_PAGE)
    output_here().show_list(list(found), finding_view(), "Nothing needs attention.")


@click.command(
    cls=Command,
    short_help="Watch topics and workers live.",
    examples="""
        pulse top
        pulse top --interval 500ms
        pulse top | head -20
        pulse top --output json | jq .dispatch
    """,
)
@click.option(
    "--interval",
    type=duration_from(tuning.WATCH_SHORTEST),
    default=tuning.WATCH_INTERVAL,
    help="The refresh interval; 2s if not given.",
)
def top(interval: timedelta) -> None:
    """Show topics and workers live; q or Ctrl-C quits.

    What needs attention comes first, then the busiest topics and disconnected workers. While no server is
    available, it shows that and retries. In a pipe it prints one snapshot.
    """
    from pulse_cli.top import show_once, watch_live

    output = output_here()
    with connected() as client:
        if output.can_redraw:
            watch_live(client, interval)
        else:
            show_once(client, output)


@click.command(
    "dead-letters",
    cls=Command,
    short_help="Show dead letters grouped by error.",
    examples="""
        pulse dead-letters
        pulse dead-letters --topic send-email
        pulse dead-letters --output json | jq -r '.[] | select(.count > 100).sample.last_error'
        pulse jobs list --topic send-email --error-group 86194952523c
        pulse jobs retry --topic send-email --error-group 86194952523c
    """,
)
@once_option("--topic", help="Only jobs on this topic.")
@click.option(
    "--limit",
    type=WholeNumber(min=1, max=tuning.LARGEST_PAGE),
    default=tuning.PAGE_SIZE,
    show_default=True,
    metavar="N",
    help="The maximum number of groups to show.",
)
def dead_letters(topic: str | None, limit: int) -> None:
    """Show dead letters grouped by topic and error.

    Errors are the same if they differ only in numbers, ids, quoted values and the like. An error
    that has a cause counts as its innermost cause: the error that it was raised from or while
    handling, or the first error of an exception group. The group with the newest dead letter comes
    first. `none` has the dead letters from before groups existed.
    """
    with connected() as client:
        found = client.dead_letters(topic=topic, limit=limit)
    on = f" on {topic}" if topic else ""
    view = dead_letter_view()
    output_here().show_list(
        list(found), view.without("TOPIC") if topic else view, f"There are no dead letters{on}."
    )
    if found.groups_left_out:
        hint(f"{found.groups_left_out:,} more groups are not shown: give a larger --limit, or a --topic.")


# ---------------------------------------------------------------- views

_SERVER_COLUMNS = (
    Column("SERVER", shortest=16),
    Column("ADDRESS", shortest=12, drop=2),
    Column("VERSION", drop=1),
    Column("STARTED", right=True),
    Column("WORKERS", right=True),
    Column("STATE"),
)


def server_view() -> View[pulse.ServerInfo]:
    """Return the view of a list of servers. A silent server is red."""
    present = now()

    def row(server: pulse.ServerInfo) -> Row:
        silent, style = server.silent_since, "red" if server.silent_since else ""
        return [
            Cell(printable.one_line(server.name), style),
            Cell(printable.one_line(server.address or "–"), style or QUIET),
            Cell(printable.one_line(server.version or "–"), style),
            Cell("–" if server.started_at is None else ago(server.started_at, present), style),
            Cell(f"{server.workers:,}", style or ("" if server.workers else QUIET)),
            Cell("serving" if silent is None else f"silent for {age(silent, present)}", style),
        ]

    fields = ("name", "address", "version", "started_at", "workers", "silent_since", "id")
    return View(_SERVER_COLUMNS, row, server_shape, fields)


_DEAD_LETTER_COLUMNS = (
    Column("TOPIC", shortest=8),
    Column("COUNT", right=True),
    Column("FIRST", drop=2),
    Column("LAST", drop=1),
    Column("GROUP"),
    Column("ERROR", shortest=14),
)
_DEAD_LETTER_FIELDS = (
    "topic",
    "error_group",
    "count",
    "first_at",
    "last_at",
    "sample.id",
    "sample.last_error",
)


def dead_letter_view() -> View[pulse.DeadLetterGroup]:
    """Return the view of a list of groups of dead letters."""
    present = now()

    def row(group: pulse.DeadLetterGroup) -> Row:
        return [
            Cell(printable.one_line(group.topic)),
            Cell(f"{group.count:,}", "bold red"),
            Cell(_relative(group.first_at, present), QUIET),
            Cell(_relative(group.last_at, present)),
            Cell(group.error_group),
            Cell(printable.cause_first(group.sample.last_error or "")),
        ]

    return View(_DEAD_LETTER_COLUMNS, row, dead_letter_shape, _DEAD_LETTER_FIELDS)


def _relative(moment: datetime | None, present: datetime) -> str:
    return "" if moment is None else ago(moment, present)


def server_shape(server: pulse.ServerInfo) -> Shape:
    """A server."""
    return fields_shape(server, "id name address version started_at workers silent_since")


def dead_letter_shape(group: pulse.DeadLetterGroup) -> Shape:
    """Dead letters with the same error."""
    own = fields_shape(group, "topic error_group count first_at last_at")
    return own | {"sample": job_shape(group.sample)}
