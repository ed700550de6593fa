"""`pulse version`."""

from __future__ import annotations

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.views.output import output_here


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
