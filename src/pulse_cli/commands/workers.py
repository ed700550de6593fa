"""`pulse workers`: shows the workers; quiets, resumes and stops them."""

from __future__ import annotations

import shlex

import click

from pulse_cli.connection import connected
from pulse_cli.declaring import Group
from pulse_cli.inputs import confirm_harm, reason_here, reason_option
from pulse_cli.output import output_here, plain
from pulse_cli.terminal import hint, print_lines, table_width
from pulse_cli.views.overview import describe_held, gone_first, worker_view
from pulse_cli.views.shapes import held_shape, worker_order_shape
from pulse_text.consequences import stop_of_worker


@click.group(
    cls=Group,
    invoke_without_command=True,
    short_help="Show the workers and the jobs they hold; quiet and stop them.",
    examples="""
        pulse workers
        pulse workers --jobs
        pulse workers --output json | jq -r '.[] | select(.connected_at == null).worker_id'
        pulse workers quiet web-7-31 --reason 'memory grows'
        pulse workers resume web-7-31
    """,
)
@click.option("--jobs", is_flag=True, help="List the jobs held by each, the longest held first.")
@click.pass_context
def workers(context: click.Context, jobs: bool) -> None:
    """Show the workers of all servers: their capacity, and since when they hold jobs.

    A disconnected worker that still holds jobs comes first: its jobs are retried when their leases expire.
    """
    if context.invoked_subcommand is not None:
        return
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


@workers.command(
    "quiet",
    short_help="Let a worker take no further jobs.",
    examples="pulse workers quiet web-7-31 --reason 'memory grows'",
)
@click.argument("worker")
@reason_option
def quiet(worker: str) -> None:
    """Let WORKER take no further jobs, until it is resumed or its process ends.

    It finishes the jobs that it has started, releases the others without costing an attempt, and stays
    connected. Any server can be asked, and it holds at all of them.
    """
    with connected() as client:
        client.quiet_worker(worker, reason=reason_here())
    again = f"pulse workers resume {shlex.quote(worker)}"
    output_here().show_done(
        f"{worker} takes no further jobs. Resume it with: {again}", worker_order_shape(worker, "quiet")
    )


@workers.command(
    "resume", short_help="Let a quiet worker take jobs.", examples="pulse workers resume web-7-31"
)
@click.argument("worker")
@reason_option
def resume(worker: str) -> None:
    """Let WORKER take jobs again."""
    with connected() as client:
        client.resume_worker(worker, reason=reason_here())
    output_here().show_done(f"{worker} takes jobs again.", worker_order_shape(worker, "running"))


@workers.command(
    "stop",
    short_help="End a worker, as SIGTERM does.",
    examples="""
        pulse workers stop web-7-31 --reason 'memory grows'
        pulse workers stop web-7-31 --yes
    """,
)
@click.argument("worker")
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def stop(worker: str, yes: bool) -> None:
    """End WORKER as SIGTERM does: it drains, and its process exits. Asks first; --yes skips it.

    A supervisor may start it again: `pulse worker --processes` and systemd do. To keep jobs from it, quiet
    it. A worker whose client is too old to be stopped becomes quiet.
    """
    with connected() as client:
        confirm_harm(client, stop_of_worker(worker), yes=yes)
        note = client.stop_worker(worker, reason=reason_here())
    state = "quiet" if note else "stopping"
    output_here().show_done(f"{worker} drains and ends.", worker_order_shape(worker, state, note))
    if note:
        hint(note)
