"""Lists of several pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from pulse_cli import tuning
from pulse_cli.views.tables import hint

T = TypeVar("T")
Thing = TypeVar("Thing", covariant=True)


class Page(Protocol[Thing]):
    """A page as the SDK returns it."""

    @property
    def next_cursor(self) -> str | None: ...
    def __iter__(self) -> Iterator[Thing]: ...


def collect(
    fetch: Callable[[int, str | None], Page[T]],
    limit: int,
    everything: bool,
    cursor: str | None,
    is_enough: Callable[[], bool] = lambda: False,
) -> tuple[list[T], str | None]:
    """Fetch page by page up to the limit. Returns the items and the next cursor.

    Without `everything`, it ends early if `is_enough` returns True after a page.
    """
    found: list[T] = []
    while True:
        wanted = tuning.LARGEST_PAGE if everything else min(limit - len(found), tuning.LARGEST_PAGE)
        page = fetch(wanted, cursor)
        found += page
        cursor = page.next_cursor
        if cursor is None or (not everything and (len(found) >= limit or is_enough())):
            return found, cursor


def hint_at_more(cursor: str | None) -> None:
    """Print how to see the rest, if there is one."""
    if cursor is not None:
        hint(f"There are more: add --all or a larger --limit, or continue with --cursor {cursor}")
