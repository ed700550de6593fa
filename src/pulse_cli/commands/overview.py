"""`pulse topics`, `pulse workers`, `pulse top` and `pulse dead-letters`: the state of the queue."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.commands.declaring import Command, Group
from pulse_cli.commands.policies import policy, retention
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs.shared_options import paging_options
from pulse_cli.inputs.times import duration_from
from pulse_cli.inputs.values import WholeNumber
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
from pulse_cli.views.tables import hint, print_lines, table_width

if TYPE_CHECKING:
    from pulse import TopicPage


_NO_TOPICS = (
    "No topic has unfinished or dead-lettered jobs, workers, or activity in the last hour. "
    "List all jobs: pulse jobs list. Submit one: pulse submit TOPIC --payload JSON"
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    short_help="Show each topic: counts, ages, rates; set policies.",
    examples="""
        pulse topics
        pulse topics --search mail
        pulse topics policy send-email --max-attempts 40
        pulse topics retention audit --completed forever
        pulse topics --all --output json | jq -r '.[] | select(.dead_lettered > 0).topic'
    """,
)
@click.option("--search", metavar="TEXT", help="Only topics whose name contains this.")
@partial(paging_options, limit=tuning.LARGEST_PAGE)
@click.pass_context
def topics(
    context: click.Context, search: str | None, limit: int, everything: bool, cursor: str | None
) -> None:
    """Show each topic: ready, waiting, running and dead-lettered jobs, their age, and rates.

    The rates are of the last full minute and the last hour. Completed jobs are counted in the rates
    only. FAIL counts failed attempts, retried or not. FOR JOBS, if there are any, counts jobs of workflows
    that wait for other jobs; WAIT does not.
    """
    if context.invoked_subcommand is not None:
        return
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
            f"a larger --limit, or continue with --cursor {more}"
        )


topics.add_command(policy)
topics.add_command(retention)


@click.command(
    cls=Command,
    short_help="Show the workers and the jobs they hold.",
    examples="""
        pulse workers
        pulse workers --jobs
        pulse workers --output json | jq -r '.[] | select(.connected_at == null).worker_id'
    """,
)
@click.option("--jobs", is_flag=True, help="List the jobs held by each, the longest held first.")
def workers(jobs: bool) -> None:
    """Show the workers of all servers: their capacity, and since when they hold jobs.

    A disconnected worker that still holds jobs comes first: its jobs are retried when their leases expire.
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
        empty = "No worker is connected or holds jobs. Start one with: pulse worker MODULE:APP"
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
    help="The refresh interval; 2s if not given.",
)
def top(interval: timedelta) -> None:
    """Show topics and workers live; q or Ctrl-C quits.

    The busiest topics and disconnected workers come first. While no server is available, it shows that and
    retries. In a pipe it prints one snapshot.
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
    short_help="Show dead letters grouped by error.",
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
