"""The root command: every command of `pulse`, in the order of its help."""

from __future__ import annotations

import click

from pulse_cli.commands.access import passwd, save, whoami
from pulse_cli.commands.access_contexts import config
from pulse_cli.commands.declaring import Command, Group
from pulse_cli.commands.dispatch import dispatch
from pulse_cli.commands.jobs import jobs
from pulse_cli.commands.jobs_submit import submit
from pulse_cli.commands.limits import lanes, limits
from pulse_cli.commands.outbox import outbox
from pulse_cli.commands.overview import dead_letters, top, topics, workers
from pulse_cli.commands.schedules import schedules
from pulse_cli.commands.work import worker
from pulse_cli.commands.workflows import workflows
from pulse_cli.views.output import output_here


@click.command(
    cls=Command,
    short_help="Print the completion script of a shell.",
    connects=False,
    examples="""
        eval "$(pulse completion bash)"                                    # in ~/.bashrc
        eval "$(pulse completion zsh)"                                     # in ~/.zshrc
        pulse completion fish > ~/.config/fish/completions/pulse.fish      # once
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    # Not the class's own source(): it checks the version of the bash on the path, which may be another one.
    click.echo(ShellComplete.source(kind(ctx.find_root().command, {}, "pulse", "_PULSE_COMPLETE")))


@click.command(cls=Command, connects=False, examples="pulse version\npulse version --output json")
def version() -> None:
    """Print the version of this program."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        number = version_of("pulse-jobs")
    except PackageNotFoundError:  # run from a checkout that is not installed
        number = "unknown"
    shape = {"version": number, "python": platform.python_version()}
    output_here().show_done(f"pulse {number} (Python {shape['python']})", shape)


COMMANDS = (
    *(submit, jobs, dead_letters, workflows, schedules, dispatch, topics, limits, lanes, workers, top),
    *(worker, outbox, whoami, save, config, passwd, completion, version),
)


@click.group(
    cls=Group,
    examples="""
        pulse submit send-email --payload '{"to": "a@b.c"}' --wait
        pulse jobs list --status DEAD_LETTERED
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs retry --topic send-email --status DEAD_LETTERED
        pulse top
        pulse dispatch pause --reason 'database maintenance'
        pulse save creds
    """,
)
def pulse() -> None:
    """Operate a pulse job queue.

    The address of pulsed is --addr, then PULSE_ADDR, then what `pulse save creds` stored, then
    localhost:50051.
    """


for _command in COMMANDS:
    pulse.add_command(_command)
