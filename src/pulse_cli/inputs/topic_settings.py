"""Options whose value is an entry of the settings of a topic, made from the declaration of the entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pulse.topic_settings import ENTRIES, Entry, Flag

F = TypeVar("F", bound=Callable[..., Any])


def value_of(entry: Entry) -> Callable[[str], Any]:
    """Return the function that converts the value of an option to a value of the entry, or to "default"."""

    def convert(text: str) -> Any:
        if not text.strip():
            # Not `default`: a variable of a script that is empty by mistake must not reset the entry.
            raise click.BadParameter(f"it is empty: write a value such as {entry.example}, or default.")
        try:
            return entry.parse(text)
        except ValueError as problem:
            raise click.BadParameter(str(problem)) from None

    convert.__name__ = entry.kind.takes.lower()  # what help shows
    return convert


def entry_options(command: F) -> F:
    """Add an option for each entry. One that is not given is None."""
    for entry in reversed(list(ENTRIES.values())):
        command = _option(entry)(command)
    return command


def _option(entry: Entry) -> Callable[[F], F]:
    if isinstance(entry.kind, Flag):
        opposite = entry.option.replace("--", "--no-", 1)
        return click.option(f"{entry.option}/{opposite}", default=None, help=entry.help)
    return click.option(
        entry.option,
        type=value_of(entry),
        metavar=entry.kind.takes,
        help=f"{entry.help.removesuffix('.')}, such as {entry.example}.",
    )


class EntryName(click.Choice[str]):
    """The name of an entry, as its option has it, without the dashes in front."""

    def __init__(self) -> None:
        super().__init__([dashed(name) for name in ENTRIES])

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name that the SDK takes."""
        chosen = super().convert(dashed(value), param, ctx)
        return chosen.replace("-", "_")


def dashed(name: str) -> str:
    """Return the name of an entry as people type it here."""
    return name.replace("_", "-")
