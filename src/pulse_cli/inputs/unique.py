"""The unique key of a job as options: --unique, --while, --on-conflict, --period, --longest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from pulse_cli.failures import Misuse
from pulse_cli.inputs.times import duration

if TYPE_CHECKING:
    import pulse

F = TypeVar("F", bound=Callable[..., Any])


class UniqueOptions(TypedDict):
    """The values of the options."""

    unique: str | None
    unique_while: pulse.UniqueWhile | None
    on_conflict: pulse.OnConflict | None
    period: timedelta | None
    longest: timedelta | None


def unique_options(command: F) -> F:
    """Add the options of a unique key."""
    for decorate in (
        click.option(
            "--longest",
            type=duration,
            help="The longest that a debounce puts off the job; ten periods if not given.",
        ),
        click.option("--period", type=duration, help="The period of --on-conflict debounce or throttle."),
        click.option(
            "--on-conflict",
            type=click.Choice(("skip", "replace", "debounce", "throttle")),
            help="If there is one: store nothing (skip, the default), give it this payload (replace), and "
            "start it a period after the last submit (debounce); store one in a period (throttle).",
        ),
        click.option(
            "--while",
            "unique_while",
            type=click.Choice(("waiting", "live")),
            help="Count jobs that have not started (waiting, the default) or have not finished (live).",
        ),
        click.option("--unique", metavar="KEY", help="At most one job of this key on the topic waits."),
    ):
        command = decorate(command)
    return command


def read_unique(options: UniqueOptions) -> pulse.Unique | None:
    """Return the unique key, or None if none was given. Raises Misuse for options that need one."""
    import pulse

    if options["unique"] is None:
        names = {"unique_while": "--while", "on_conflict": "--on-conflict"}
        for name in ("unique_while", "on_conflict", "period", "longest"):
            if options.get(name) is not None:
                raise Misuse(f"{names.get(name, f'--{name}')} goes with --unique KEY.")
        return None
    return pulse.Unique(
        options["unique"],
        while_=options["unique_while"] or "waiting",
        on_conflict=options["on_conflict"] or "skip",
        period=options["period"],
        longest=options["longest"],
    )
