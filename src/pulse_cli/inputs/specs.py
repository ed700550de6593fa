"""The timetable of a schedule as options: --every, --cron with --tz, --at, --after."""

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
    """The values of the options."""

    every: timedelta | None
    cron: str | None
    tz: str | None
    at: datetime | None
    after: timedelta | None


def spec_options(command: F) -> F:
    """Add the options of a timetable."""
    for decorate in (
        click.option("--after", type=duration, help="Once, this long from now."),
        click.option(
            "--at",
            type=moment,
            metavar="TIME",
            help="Once, at this time; in this machine's zone unless given.",
        ),
        click.option(
            "--tz",
            metavar="ZONE",
            help="The time zone of --cron, such as Europe/Paris; if not given UTC, and in `update` as it is.",
        ),
        click.option(
            "--cron",
            metavar="EXPRESSION",
            help="A cron expression of five fields, @daily and the like, or '@every 90s'.",
        ),
        click.option("--every", type=duration, help="Repeatedly, at this interval."),
    ):
        command = decorate(command)
    return command


def read_spec(options: SpecOptions) -> pulse.At | pulse.After | pulse.Every | pulse.Cron | None:
    """Return the timetable, or None if no option was given. Raises Misuse for more than one."""
    import pulse

    named = [name for name in ("every", "cron", "at", "after") if options.get(name) is not None]
    if len(named) > 1:
        raise Misuse(f"Give only one of {', '.join(f'--{name}' for name in named)}.")
    if options["tz"] is not None and options["cron"] is None:
        raise Misuse("--tz goes with --cron: it is the zone of the expression.")
    if options["every"] is not None:
        return pulse.Every(options["every"])
    if options["cron"] is not None:
        return pulse.Cron(options["cron"], options["tz"])
    if options["at"] is not None:
        return pulse.At(options["at"])
    if options["after"] is not None:
        return pulse.After(options["after"])
    return None


def required_spec(options: SpecOptions) -> pulse.At | pulse.After | pulse.Every | pulse.Cron:
    """Return the timetable. Raises Misuse if no option was given."""
    spec = read_spec(options)
    if spec is None:
        raise Misuse(
            "Give a timetable: --every 5m, --cron '0 9 * * 1-5', --at 2030-01-31T09:00 or --after 2h."
        )
    return spec
