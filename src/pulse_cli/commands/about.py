"""`pulse completion` and `pulse version`: the program itself."""

from __future__ import annotations

import click

from pulse_cli.commands.declaring import Command
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
