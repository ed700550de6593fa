"""`--limit`, `--all` and `--cursor`: how much of a list, and from where on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pulse_cli import tuning

F = TypeVar("F", bound=Callable[..., Any])


def paging_options(command: F, *, limit: int = tuning.PAGE_SIZE) -> F:
    """Add --limit, --all and --cursor to a command."""
    for decorate in (
        click.option("--cursor", metavar="CURSOR", help="Go on where the list before ended."),
        click.option("--all", "everything", is_flag=True, help="Everything, however much that is."),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=limit,
            show_default=True,
            metavar="N",
            help="The most to show.",
        ),
    ):
        command = decorate(command)
    return command
