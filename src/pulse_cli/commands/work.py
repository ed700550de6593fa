"""`pulse worker`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pulse_cli import declaring
from pulse_cli.connection import Origin, environment_of, is_same_address, settings_here, with_password
from pulse_cli.failures import Failure
from pulse_cli.inputs import WholeNumber, duration_from, size
from pulse_cli.terminal import hint
from pulse_cli.work.options import WorkerOptions, names

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


@click.command(
    cls=declaring.Command,
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
    from pulse.supervision import lifeline
    from pulse.supervision.processes import Command
    from pulse_cli.work.starting import start

    lifeline.hold()
    settings = with_password(settings_here())
    os.environ.update(environment_of(settings))
    options = WorkerOptions(
        target, names(topics), names(include), concurrency, drain_timeout, max_jobs, max_memory, log_format
    )
    command = Command([sys.executable, "-m", "pulse_cli", "worker", target, *options.flags()])

    def load() -> Pulse | SyncPulse:
        from pulse_cli.work.loading import load_app

        app = load_app(target, options.include)
        address = settings.values["address"]
        if address.origin is Origin.FLAG and not is_same_address(app.address, address.value):
            hint(f"pulse: warning: {target} sets its own address, {app.address}, so --addr has no effect.")
        return app

    if code := start(options, command, load, processes=processes, reload=reload):
        raise Failure("", abs(code))
