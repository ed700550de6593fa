"""Options whose value is a duration or a point in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import click

from pulse_text.times import format_exact, now, parse_duration, parse_moment, parse_past_moment


def duration(text: str | timedelta) -> timedelta:
    """Convert the value of an option to a duration."""
    if isinstance(text, timedelta):  # a default
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_from(shortest: timedelta) -> Callable[[str | timedelta], timedelta]:
    """Return a converter that also refuses durations below `shortest`."""

    def convert(text: str | timedelta) -> timedelta:
        span = duration(text)
        if span < shortest:
            raise click.BadParameter(f"{text!r} is too short: the minimum is {format_exact(shortest)}.")
        return span

    convert.__name__ = "duration"  # what help shows
    return convert


def moment(text: str) -> datetime:
    """Convert the value of an option to a point in time."""
    try:
        return parse_moment(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def past_moment(text: str) -> datetime:
    """Convert the value of an option to a point in time; a duration means that long ago."""
    try:
        return parse_past_moment(text, present=now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
