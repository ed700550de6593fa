"""The statuses of a job, as an option takes them."""

from __future__ import annotations

import click

from pulse_text.statuses import STATUSES


def status(text: str) -> str:
    """The type of an option whose value is a status; dead-lettered and cancelled are understood as well."""
    name = {"CANCELLED": "CANCELED"}.get(text.upper(), text.upper()).replace("-", "_")
    if name not in STATUSES:
        raise click.BadParameter(f"{text!r} is not a status: use one of {', '.join(STATUSES)}.")
    return name


def complete_status(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Tell a shell which statuses begin so."""
    return [name for name in STATUSES if name.startswith(typed.upper())]
