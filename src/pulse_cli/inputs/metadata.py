"""`--metadata name=value`, repeatable."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pulse_cli.failures import Misuse

metadata_option = click.option(
    "--metadata", multiple=True, metavar="NAME=VALUE", help="A string stored with the job; repeatable."
)


def read_metadata(pairs: Sequence[str]) -> dict[str, str] | None:
    """Return the pairs as a mapping, or None if there are none."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Misuse(f"--metadata {pair!r} is not of the form name=value.")
        found[name] = value
    return found or None
