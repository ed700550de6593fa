"""`pulse topics`, `pulse workers`, `pulse top` and `pulse dead-letters`: the state of the queue."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs.paging import paging_options
from pulse_cli.inputs.times import duration_from
from pulse_cli.loops.pages import collect
from pulse_cli.views.output import output_here, plain
from pulse_cli.views.overview import (
    dead_letter_view,
    describe_held,
    gone_first,
    topic_table,
    topic_view,
    worker_view,
)
from pulse_cli.views.shapes import held_shape
from pulse_cli.views.terminal import hint, print_lines, table_width

if TYPE_CHECKING:
    from pulse import TopicPage


_NO_TOPICS = (
    "No job waits, runs or died, no worker is connected, and no whole minute of the last hour had any "
    "news. See what is finished: pulse jobs list. Store a job: pulse submit TOPIC --payload JSON"
)


@click.command(
    cls=Command,
    short_help="Show each topic: how much, how old, how fast.",
    examples="""
        pulse topics
        pulse topics --search mail
        pulse topics --all --output json | jq -r '.[] | select(.dead_lettered > 0).topic'
    """,
)
@click.option("--search", metavar="TEXT", help="Only topics whose name contains this.")
@partial(paging_options, limit=tuning.LARGEST_PAGE)
def topics(search: str | None, limit: int, everything: bool, cursor: str | None) -> None:
    """Show each topic: what is ready, waits, runs or died, since when, and how fast it goes.

    The rates are those of the last whole minute and the last hour; completed jobs are counted in them
    only. FAIL counts attempts that failed, whether the job was tried again or not.
    """
    output = output_here()
    with connected() as client:
        pages: list[TopicPage] = []

        def fetch(size: int, at: str | None) -> TopicPage:
            pages.append(client.list_topics(search=search, limit=size, cursor=at))
            return pages[-1]

        found, more = collect(fetch, limit, everything, cursor)
    last = pages[-1]
    if output.is_for_people and found:
        print_lines(topic_table(found, table_width(), None if search else last.sum))
    else:
        output.show_list(found, topic_view(), _NO_TOPICS if not search else f"No topic contains {search!r}.")
    if more is not None:
        hint(
            f"{len(found):,} of {last.total:,} topics are shown: narrow it with --search TEXT, add --all or "
            f"a larger --limit, or go on with --cursor {more}"
        )


@click.command(
    cls=Command,
    short_help="Show who is connected, and who holds what.",
    examples="""
        pulse workers
        pulse workers --jobs
        pulse workers --output json | jq -r '.[] | select(.connected_at == null).worker_id'
    """,
)
@click.option("--jobs", is_flag=True, help="List the jobs that each holds, the longest held first.")
def workers(jobs: bool) -> None:
    """Show who is connected to any server, with what capacity, and who holds jobs since when.

    A worker that is gone and still holds jobs comes first: they go to another when its leases end.
    """
    output = output_here()
    with connected() as client:
        found = client.workers()
    if jobs and output.form == "plain":
        for worker in found:
            for job in worker.held:
                click.echo("\t".join(map(plain, [worker.worker_id, *held_shape(job).values()])))
    elif jobs and output.is_for_people and found:
        print_lines(describe_held(gone_first(found), table_width()))
    else:
        empty = "No worker is connected, and none holds jobs. Start one with: pulse worker MODULE:APP"
        output.show_list(gone_first(found) if output.is_for_people else found, worker_view(), empty)


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
    help="How often it looks; every 2s if not given.",
)
def top(interval: timedelta) -> None:
    """Fill the screen with topics and workers, live; q or Ctrl-C ends it.

    The topics with the most to do come first, and workers that are gone. It goes on while no server is
    there, and says so. In a pipe it prints what it sees once.
    """
    from pulse_cli.loops.top import show_once, watch_live

    output = output_here()
    with connected() as client:
        if output.can_redraw:
            watch_live(client, interval)
        else:
            show_once(client, output)


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
