"""Lists longer than a page: as many as were asked for, page by page, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from pulse_cli import tuning
from pulse_cli.views.terminal import hint

T = TypeVar("T")
Thing = TypeVar("Thing", covariant=True)


class Page(Protocol[Thing]):
    """What the SDK answers to a list."""

    @property
    def next_cursor(self) -> str | None: ...
    def __iter__(self) -> Iterator[Thing]: ...


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
