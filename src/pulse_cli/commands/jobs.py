"""`pulse jobs`: look at jobs and act on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli import tuning
from pulse_cli.connecting import connected
from pulse_cli.declaring import Group
from pulse_cli.durations import duration_from
from pulse_cli.each import act_on_each
from pulse_cli.identifiers import job_id
from pulse_cli.job_views import STATUSES, complete_status, describe_job, job_view, status
from pulse_cli.output import output_here
from pulse_cli.paging import collect, paging_options, tell_more
from pulse_cli.shapes import job_shape, whole_job_shape

if TYPE_CHECKING:
    from pulse import JobInfo, SyncPulse


@click.group(
    cls=Group,
    examples="""
        pulse jobs list --topic send-email --status RUNNING
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs cancel 0199c0de-0000-7000-8000-000000000001
    """,
)
def jobs() -> None:
    """Look at jobs, cancel them, bring them back."""


@jobs.command(
    "list",
    examples="""
        pulse jobs list
        pulse jobs list --status DEAD_LETTERED --topic send-email
        pulse jobs list --status RUNNING --watch
        pulse jobs list --all --output json | jq -r '.[] | select(.attempts > 3).id'
        pulse jobs list --status DEAD_LETTERED --output plain | cut -f1
    """,
)
@click.option("--topic", help="Only jobs on this topic.")
@click.option(
    "--status",
    type=status,
    shell_complete=complete_status,
    help=f"Only jobs in this status: {', '.join(STATUSES)}.",
)
@paging_options
@click.option("--watch", is_flag=True, help="Show the list again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=duration_from(tuning.WATCH_SHORTEST),
    default=tuning.WATCH_INTERVAL,
    help="How often --watch looks; every 2s if not given.",
)
def list_jobs(
    topic: str | None,
    status: str | None,
    limit: int,
    everything: bool,
    cursor: str | None,
    watch: bool,
    interval: timedelta,
) -> None:
    """List jobs, newest first."""
    output = output_here()
    # What was asked for needs no column of its own: that leaves room for how the jobs are doing.
    same = [*(["TOPIC"] if topic else []), *(["STATUS"] if status else [])]
    empty = _nothing(topic, status)
    with connected() as client:

        def fetch() -> tuple[list[JobInfo], str | None]:
            return collect(
                lambda size, at: client.list_jobs(topic=topic, status=status, limit=size, cursor=at),
                *(limit, everything, cursor),
            )

        if watch:
            from pulse_cli.watching import watch_list

            watch_list(lambda: fetch()[0], lambda: job_view().without(*same), empty, output, interval)
            return
        found, more = fetch()
    output.show_list(found, job_view().without(*same), empty)
    tell_more(more)


@jobs.command(
    "get",
    examples="""
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs get 0199c0de-0000-7000-8000-000000000001 --output json | jq .payload
    """,
)
@click.argument("job", metavar="ID")
def get(job: str) -> None:
    """Show all about a job: its state, each attempt, its payload."""
    wanted = job_id(job)
    with connected() as client:
        found = client.get_job(wanted)
    output_here().show_one(whole_job_shape(found), lambda: describe_job(found))


@jobs.command(
    "cancel",
    examples="""
        pulse jobs cancel 0199c0de-0000-7000-8000-000000000001 --reason 'sent twice'
        pulse jobs list --topic import --status PENDING -o plain | cut -f1 | xargs pulse jobs cancel
    """,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; it is kept with the job.")
def cancel(job_ids: tuple[str, ...], reason: str) -> None:
    """Cancel jobs. A handler that runs is told to stop."""
    _act(job_ids, lambda client, wanted: client.cancel(wanted, reason), "Cancelled")


@jobs.command(
    "retry",
    examples="""
        pulse jobs retry 0199c0de-0000-7000-8000-000000000001
        pulse jobs retry 0199c0de-0000-7000-8000-000000000001 --attempts 3
    """,
)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--attempts", type=click.IntRange(min=1), metavar="N", help="Give it this many further attempts."
)
def retry(job_ids: tuple[str, ...], attempts: int | None) -> None:
    """Bring back jobs that were dead-lettered or cancelled."""
    _act(job_ids, lambda client, wanted: client.retry(wanted, attempts), "Brought back")


def _act(typed: Sequence[str], verb: Callable[[SyncPulse, str], JobInfo], done: str) -> None:
    wanted = list(dict.fromkeys(job_id(one) for one in typed))
    with connected() as client:
        act_on_each(
            wanted,
            lambda one: verb(client, one),
            sentence=lambda job: f"{done} {job.id} on {job.topic}: it is {job.status} now.",
            shape=job_shape,
        )


def _nothing(topic: str | None, status: str | None) -> str:
    kind = " ".join(filter(None, [status, "jobs", f"on {topic}" if topic else ""]))
    if topic or status:
        return f"There are no {kind}. `pulse jobs list` shows all."
    return f"There are no {kind} yet. Store one with: pulse submit TOPIC --payload JSON"
