"""`pulse worker`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import environment_of, settings_here, with_password
from pulse_cli.connection.settings import Origin, is_same_address
from pulse_cli.failures import Failure
from pulse_cli.views.terminal import hint


@click.command(
    cls=Command,
    short_help="Run the handlers of an application.",
    examples="""
        pulse worker tasks:app
        pulse worker shop.tasks:app --concurrency 50
        pulse worker tasks:app --topics send-email,send-sms
        pulse worker tasks:app --reload
    """,
)
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="The number of concurrent handlers; the default is the application's.",
)
@click.option("--topics", multiple=True, metavar="TOPIC,...", help="Serve only these topics; repeatable.")
@click.option(
    "--reload", is_flag=True, help="Restart when a .py file below this directory changes; for development."
)
def worker(target: str, concurrency: int | None, topics: tuple[str, ...], reload: bool) -> None:
    """Run the handlers of an application: the Pulse object APP in MODULE.

    An application that calls Pulse() without an address uses the connection of this command: the
    options, the environment, then the saved context. Ctrl-C or SIGTERM drains: running handlers
    finish, and jobs that were not started are released.
    """
    settings = with_password(settings_here())
    os.environ.update(environment_of(settings))
    wanted = [name.strip() for group in topics for name in group.split(",") if name.strip()]
    if reload:
        _reload(target, concurrency, wanted)
        return
    from pulse_cli.work.loading import load_app
    from pulse_cli.work.running import run_app

    app = load_app(target)
    address = settings.values["address"]
    if address.origin is Origin.FLAG and not is_same_address(app.address, address.value):
        hint(f"pulse: warning: {target} sets its own address, {app.address}, so --addr has no effect.")
    run_app(app, target, concurrency, wanted)


def _reload(target: str, concurrency: int | None, topics: list[str]) -> None:
    from pulse_cli.work.reloading import run_reloading

    arguments = ["worker", target]
    arguments += [] if concurrency is None else ["--concurrency", str(concurrency)]
    arguments += ["--topics", ",".join(topics)] if topics else []
    code = run_reloading(arguments, Path.cwd())
    if code:
        raise Failure("", abs(code))
