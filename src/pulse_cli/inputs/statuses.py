"""An option whose value is a status."""

from __future__ import annotations

import click

from pulse_text.statuses import STATUSES


def status(text: str) -> str:
    """Convert the value of an option to a status; dead-lettered and `cancelled` are accepted too."""
    name = {"CANCELLED": "CANCELED"}.get(text.upper(), text.upper()).replace("-", "_")
    if name not in STATUSES:
        raise click.BadParameter(f"{text!r} is not a status: use one of {', '.join(STATUSES)}.")
    return name


def complete_status(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Complete a status for a shell."""
    return [name for name in STATUSES if name.startswith(typed.upper())]
