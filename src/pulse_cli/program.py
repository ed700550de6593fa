"""The root command: every command of `pulse`, in the order of its help."""

from __future__ import annotations

import click

from pulse_cli.access import config, passwd, save, whoami
from pulse_cli.audit import audit
from pulse_cli.declaring import Command, Group
from pulse_cli.jobs.actions import undo
from pulse_cli.jobs.commands import jobs, submit
from pulse_cli.outbox.commands import outbox
from pulse_cli.output import output_here
from pulse_cli.overview import attention, dead_letters, servers, top
from pulse_cli.schedules.commands import schedules
from pulse_cli.terminal import hint
from pulse_cli.topics.commands import dispatch, lanes, topics
from pulse_cli.workers import worker, workers
from pulse_cli.workflows import workflows


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
    others = _others_named_pulse()
    shape = {"version": number, "python": platform.python_version(), "conflicts": others}
    output_here().show_done(f"pulse {number} (Python {shape['python']})", shape)
    if others:
        hint(
            f"{', '.join(others)} installs a package or a command `pulse` as well. The two overwrite each "
            "other's files: use an environment for each."
        )


def _others_named_pulse() -> list[str]:
    """Return the other distributions of this environment that install a package or a command `pulse`."""
    import re
    from importlib.metadata import distributions

    # Not `files`, nor packages_distributions: both make an object of each file of the environment.
    ours = re.compile(r"^(pulse/|\S*/bin/pulse,)", re.MULTILINE)
    found = (one.metadata["Name"] for one in distributions() if ours.search(one.read_text("RECORD") or ""))
    return sorted({*found} - {"pulse-jobs"})


COMMANDS = (
    submit,
    jobs,
    undo,
    attention,
    dead_letters,
    workflows,
    schedules,
    dispatch,
    topics,
    lanes,
    workers,
    servers,
    top,
    worker,
    outbox,
    audit,
    whoami,
    save,
    config,
    passwd,
    completion,
    version,
)


def _print_version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        ctx.invoke(version)
        ctx.exit()


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
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_print_version,
    help="The same as `pulse version`.",
)
def pulse() -> None:
    """Operate a pulse job queue.

    The address of pulsed is --addr, then PULSE_ADDR, then what `pulse save creds` stored, then
    localhost:50051.
    """


for _command in COMMANDS:
    pulse.add_command(_command)
