"""When a schedule fires, as options: --every, --cron with --tz, --at, --after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from pulse_cli.failures import Misuse
from pulse_cli.inputs.times import duration, moment

if TYPE_CHECKING:
    import pulse

F = TypeVar("F", bound=Callable[..., Any])


class SpecOptions(TypedDict):
    """What the options were given."""

    every: timedelta | None
    cron: str | None
    tz: str | None
    at: datetime | None
    after: timedelta | None


def spec_options(command: F) -> F:
    """Add the options that say when."""
    for decorate in (
        click.option("--after", type=duration, help="Once, this long from now."),
        click.option(
            "--at", type=moment, metavar="TIME", help="Once, at this time; without a zone: this machine's."
        ),
        click.option(
            "--tz", metavar="ZONE", help="The time zone of --cron, such as Europe/Paris; UTC if not given."
        ),
        click.option(
            "--cron",
            metavar="EXPRESSION",
            help="By a cron expression of five fields, @daily and the like, or '@every 90s'.",
        ),
        click.option("--every", type=duration, help="Again and again, this far apart."),
    ):
        command = decorate(command)
    return command


def read_spec(options: SpecOptions) -> pulse.At | pulse.After | pulse.Every | pulse.Cron | None:
    """Return what the options say, or None if that is nothing. Raises Misuse for several at once."""
    import pulse

    named = [name for name in ("every", "cron", "at", "after") if options.get(name) is not None]
    if len(named) > 1:
        raise Misuse(f"Give one of {', '.join(f'--{name}' for name in named)}: a schedule fires in one way.")
    if options["tz"] is not None and options["cron"] is None:
        raise Misuse("--tz goes with --cron: it is the zone in which the expression is read.")
    if options["every"] is not None:
        return pulse.Every(options["every"])
    if options["cron"] is not None:
        return pulse.Cron(options["cron"], options["tz"] or "UTC")
    if options["at"] is not None:
        return pulse.At(options["at"])
    if options["after"] is not None:
        return pulse.After(options["after"])
    return None


def required_spec(options: SpecOptions) -> pulse.At | pulse.After | pulse.Every | pulse.Cron:
    """Return what the options say. Raises Misuse if that is nothing."""
    spec = read_spec(options)
    if spec is None:
        raise Misuse("Say when: --every 5m, --cron '0 9 * * 1-5', --at 2030-01-31T09:00 or --after 2h.")
    return spec
