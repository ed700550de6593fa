"""Refreshes a list: in place on a terminal, one below the other in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import click

from pulse_cli.views.output import Output, View, table
from pulse_cli.views.tables import QUIET, Cell, Line
from pulse_cli.views.terminal import make_console, styled

T = TypeVar("T")


def watch_list(
    fetch: Callable[[], Sequence[T]],
    view: Callable[[], View[T]],
    empty: str,
    output: Output,
    interval: timedelta,
) -> None:
    """Show the result of `fetch` until Ctrl-C. An unavailable server is retried."""
    if output.is_for_people and sys.stdout.isatty():
        _watch_in_place(fetch, view, empty, interval)
    while True:
        output.show_list(fetch(), view(), empty)
        if output.form != "json":
            click.echo()
        time.sleep(interval.total_seconds())


def _watch_in_place(
    fetch: Callable[[], Sequence[T]], view: Callable[[], View[T]], empty: str, interval: timedelta
) -> None:
    from rich.console import Group
    from rich.live import Live

    import pulse

    console = make_console()
    shown: list[Line] = []
    trouble = ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                things = fetch()
                shown = table(things, view()) if things else [[Cell(empty)]]
                trouble = ""
            except pulse.Unavailable as error:
                trouble = error.message
            height = max(console.height - 3, 1)
            lines = shown[:height]
            if len(shown) > height:
                lines.append([Cell(f"… and {len(shown) - height} more", QUIET)])
            footer = f"every {interval.total_seconds():g}s, Ctrl-C ends it"
            lines.append([Cell(trouble, "red")] if trouble else [Cell(footer, QUIET)])
            live.update(Group(*map(styled, lines)), refresh=True)
            time.sleep(interval.total_seconds())
