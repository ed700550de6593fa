"""Options whose value is a time: how long, when, or how long ago."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import click

from pulse_cli.text.durations import format_exact, parse_duration
from pulse_cli.text.moments import EXAMPLES, now, parse_moment


def duration(text: str | timedelta) -> timedelta:
    """The type of an option whose value is a duration."""
    if isinstance(text, timedelta):  # a default
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_from(shortest: timedelta) -> Callable[[str | timedelta], timedelta]:
    """Return the type of an option whose value is a duration of some length."""

    def convert(text: str | timedelta) -> timedelta:
        span = duration(text)
        if span < shortest:
            raise click.BadParameter(f"{text!r} is too short: {format_exact(shortest)} is the least.")
        return span

    convert.__name__ = "duration"  # what help shows
    return convert


def moment(text: str) -> datetime:
    """The type of an option whose value is a point in time."""
    try:
        return parse_moment(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def past_moment(text: str) -> datetime:
    """The type of an option whose value is a point in time, or how long ago that was."""
    try:
        return now() - parse_duration(text)
    except ValueError:
        pass
    except OverflowError:
        raise click.BadParameter(f"{text!r} is longer ago than there are years.") from None
    try:
        return parse_moment(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time: write how long ago, such as 2h, or {EXAMPLES}."
        ) from None
