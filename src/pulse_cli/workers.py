"""`pulse workers`: the workers of all servers, and orders to them. `pulse worker`: runs one here."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli.connection import (
    Origin,
    connected,
    environment_of,
    is_same_address,
    settings_here,
    with_password,
)
from pulse_cli.declaring import Command, Group
from pulse_cli.failures import Failure
from pulse_cli.inputs import WholeNumber, confirm_harm, duration_from, reason_here, reason_option, size
from pulse_cli.output import Shape, View, fields_shape, output_here, plain
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Line,
    Row,
    age,
    ago,
    hint,
    lay_out,
    now,
    print_lines,
    table_width,
)
from pulse_text import printable
from pulse_text.consequences import stop_of_worker
from pulse_text.jobs import summary

if TYPE_CHECKING:
    import pulse
    from pulse import Pulse, SyncPulse


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


# ---------------------------------------------------------------- pulse worker


@click.command(
    cls=Command,
    short_help="Run the handlers of an application.",
    examples="""
        pulse worker tasks:app
        pulse worker shop.tasks:app --concurrency 50
        pulse worker shop.app:p --include shop.tasks,shop.mail
        pulse worker shop.app:p --include 'shop.*.tasks'
        pulse worker tasks:app --topics send-email,send-sms
        pulse worker tasks:app --topics 'mail.*'
        pulse worker tasks:app --processes 4 --max-jobs 10000 --max-memory 512M
        pulse worker tasks:app --reload
    """,
)
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--concurrency",
    type=WholeNumber(1, 10_000),
    metavar="N",
    help="The number of concurrent handlers; the default is the application's.",
)
@click.option(
    "--topics",
    multiple=True,
    metavar="TOPIC,...",
    help="Serve only these topics, of those that have a handler; * stands for any characters. Repeatable.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="MODULE,...",
    help="Also import these modules, which have handlers; * stands for one part of a name, ** for any "
    "number. Repeatable.",
)
@click.option(
    "--processes",
    type=WholeNumber(1, 1_000),
    metavar="N",
    help="Run this many processes, and start those again that die. SIGHUP replaces them one by one.",
)
@click.option(
    "--drain-timeout",
    type=duration_from(timedelta(milliseconds=1)),
    metavar="DURATION",
    help="How long handlers may take to finish when the worker stops; the default is the application's.",
)
@click.option(
    "--max-jobs",
    type=WholeNumber(1),
    metavar="N",
    help="Replace a process once it has reported about N jobs (90% to 100% of it). It also finishes what it "
    "has started by then, up to some twice its concurrency. Without --processes, drain and exit.",
)
@click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="The same once a process takes more memory than this, such as 512M.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the worker and its supervisor log, unless the application configures the log: in words, or one "
    "JSON object in each line. The supervisor does not import the application.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Restart when a .py file below this directory changes; for development. Handlers then have 5 s "
    "to finish, or --drain-timeout if that is shorter.",
)
def worker(
    target: str,
    concurrency: int | None,
    topics: tuple[str, ...],
    include: tuple[str, ...],
    processes: int | None,
    drain_timeout: timedelta | None,
    max_jobs: int | None,
    max_memory: int | None,
    log_format: str,
    reload: bool,
) -> None:
    """Run the handlers of an application: the Pulse object APP in MODULE.

    An application that calls Pulse() without an address uses the connection of this command: the
    options, the environment, then the saved context. Ctrl-C or SIGTERM drains: running handlers
    finish, and jobs that were not started are released. A second one does not wait for handlers.
    """
    from pulse.supervision import supervised
    from pulse.supervision.processes import Command as ProcessCommand
    from pulse_cli.running import WorkerOptions, load_app, names, start

    supervised.hold_lifeline()
    settings = with_password(settings_here())
    os.environ.update(environment_of(settings))
    options = WorkerOptions(
        target, names(topics), names(include), concurrency, drain_timeout, max_jobs, max_memory, log_format
    )
    command = ProcessCommand([sys.executable, "-m", "pulse_cli", "worker", target, *options.flags()])

    def load() -> Pulse | SyncPulse:
        app = load_app(target, options.include)
        address = settings.values["address"]
        if address.origin is Origin.FLAG and not is_same_address(app.address, address.value):
            hint(f"pulse: warning: {target} sets its own address, {app.address}, so --addr has no effect.")
        return app

    if code := start(options, command, load, processes=processes, reload=reload):
        raise Failure("", abs(code))


# ---------------------------------------------------------------- views

WORKER_COLUMNS = (
    Column("WORKER", shortest=16),
    Column("HOLDS", right=True),
    Column("LONGEST", right=True),
    Column("CONNECTED", shortest=14),
    Column("TOPICS", shortest=10, drop=2),
    Column("SERVER", shortest=8, drop=3),
)


def worker_view() -> View[pulse.WorkerInfo]:
    """Return the view of a list of workers."""
    present = now()
    fields = ("worker_id", "server", "connected_at", "topics", "capacity", "held_count", "state")
    return View(WORKER_COLUMNS, lambda worker: worker_row(worker, present), worker_shape, fields)


def worker_row(worker: pulse.WorkerInfo, present: datetime) -> Row:
    """Return a worker's row. It is red for a disconnected worker that still holds jobs."""
    style = "" if worker.connected_at else "red"
    longest = min((job.since for job in worker.held if job.since), default=None)
    holds = f"{worker.held_count:,}/{worker.capacity:,}" if worker.connected_at else f"{worker.held_count:,}"
    return [
        Cell(printable.one_line(worker.worker_id), style),
        Cell(holds, style or ("" if worker.held_count else QUIET)),
        Cell(age(longest, present), style or ("" if longest else QUIET)),
        _connection(worker, present),
        Cell(printable.one_line(", ".join(worker.topics)) or "–", style or QUIET),
        Cell(printable.one_line(worker.server or "–"), style or QUIET),
    ]


def _connection(worker: pulse.WorkerInfo, present: datetime) -> Cell:
    """Return since when it is connected, and what an operator has ordered."""
    if worker.connected_at is None:
        return Cell(_gone(worker, present), "red")
    since = age(worker.connected_at, present)
    return Cell(f"{since}, {worker.state.name}", "yellow") if worker.state else Cell(since)


def gone_first(workers: Sequence[pulse.WorkerInfo]) -> list[pulse.WorkerInfo]:
    """Return the workers by name, disconnected ones first."""
    return sorted(workers, key=lambda worker: worker.connected_at is not None)


def describe_held(workers: Sequence[pulse.WorkerInfo], width: int | None) -> Iterator[Line]:
    """Yield each worker, followed by the jobs it holds."""
    present = now()
    columns = (
        Column(""),
        Column("", shortest=8),
        Column("", drop=1),
        Column(""),
        Column("", drop=2),
        Column("", shortest=10, drop=3),
    )
    for worker in workers:
        name = printable.one_line(worker.worker_id)
        if worker.connected_at:
            order = "" if worker.state is None else f", {worker.state.name}"
            state = f"connected {ago(worker.connected_at, present)}{order}"
            yield [Cell(name, "bold"), Cell(f"  {state}, holds {worker.held_count:,} of {worker.capacity:,}")]
        else:
            state = _gone(worker, present)
            yield [Cell(name, "bold red"), Cell(f"  {state}, holds {worker.held_count:,}", "red")]
        yield from lay_out(columns, [_held_row(job, present) for job in worker.held], width)[1:]
        if worker.held_count > len(worker.held):
            yield [Cell(f"  … and {worker.held_count - len(worker.held):,} more", QUIET)]


def _held_row(job: pulse.HeldJob, present: datetime) -> Row:
    lease = "" if job.lease_until is None else f"lease ends {ago(job.lease_until, present)}"
    is_over = job.lease_until is not None and job.lease_until < present
    return [
        Cell(f"  {job.id}"),
        Cell(printable.one_line(job.topic)),
        Cell(f"attempt {job.attempt}"),
        Cell(f"for {age(job.since, present)}"),
        Cell("lease expired" if is_over else lease, "red" if is_over else QUIET),
        Cell("" if job.progress is None else printable.one_line(summary(job.progress, present))),
    ]


def _gone(worker: pulse.WorkerInfo, present: datetime) -> str:
    """Return how long a disconnected worker still holds its leases."""
    until = max((job.lease_until for job in worker.held if job.lease_until), default=None)
    if until is None:
        return "gone"
    return f"gone, {age(present, until)} left" if until > present else "gone, overdue"


def worker_shape(worker: pulse.WorkerInfo) -> Shape:
    """A worker, and the jobs that it holds."""
    return fields_shape(worker, "worker_id server connected_at topics capacity held_count held state")


def worker_order_shape(worker_id: str, state: str, note: str | None = None) -> Shape:
    """What was ordered of a worker."""
    return {"worker_id": worker_id, "state": state, "note": note}


def held_shape(job: pulse.HeldJob) -> Shape:
    """A job held by a worker."""
    return fields_shape(job, "id topic attempt since lease_until progress")
