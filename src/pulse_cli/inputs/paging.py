"""`--limit`, `--all` and `--cursor`: how much of a list, and where it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.inputs.numbers import WholeNumber

F = TypeVar("F", bound=Callable[..., Any])


def paging_options(command: F, *, limit: int = tuning.PAGE_SIZE) -> F:
    """Add --limit, --all and --cursor to a command."""
    for decorate in (
        click.option("--cursor", metavar="CURSOR", help="Continue where the previous list ended."),
        click.option("--all", "everything", is_flag=True, help="The whole list."),
        click.option(
            "--limit",
            type=WholeNumber(min=1),
            default=limit,
            show_default=True,
            metavar="N",
            help="The maximum to show.",
        ),
    ):
        command = decorate(command)
    return command
