"""Lists longer than a page: as many as were asked for, page by page, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.output import hint

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Thing = TypeVar("Thing", covariant=True)


class Page(Protocol[Thing]):
    """What the SDK answers to a list."""

    @property
    def next_cursor(self) -> str | None: ...
    def __iter__(self) -> Iterator[Thing]: ...


def paging_options(command: F) -> F:
    """Add --limit, --all and --cursor to a command."""
    for decorate in (
        click.option("--cursor", metavar="CURSOR", help="Go on where the list before ended."),
        click.option("--all", "everything", is_flag=True, help="Everything, however much that is."),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=tuning.PAGE_SIZE,
            show_default=True,
            metavar="N",
            help="The most to show.",
        ),
    ):
        command = decorate(command)
    return command


def collect(
    fetch: Callable[[int, str | None], Page[T]], limit: int, everything: bool, cursor: str | None
) -> tuple[list[T], str | None]:
    """Fetch page by page until there are enough. Returns them, and where the next list would begin."""
    found: list[T] = []
    while True:
        wanted = tuning.LARGEST_PAGE if everything else min(limit - len(found), tuning.LARGEST_PAGE)
        page = fetch(wanted, cursor)
        found += page
        cursor = page.next_cursor
        if cursor is None or (not everything and len(found) >= limit):
            return found, cursor


def tell_more(cursor: str | None) -> None:
    """Tell how to see the rest, if there is one."""
    if cursor is not None:
        hint(f"There are more: add --all or a larger --limit, or go on with --cursor {cursor}")
