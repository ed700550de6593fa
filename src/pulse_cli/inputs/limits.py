"""Options whose value limits a topic: a value, or `default` to hand the entry back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from pulse_cli.inputs.policies import DEFAULT, count
from pulse_text.rates import parse_rate

if TYPE_CHECKING:
    import pulse

_SHOWN = 40  # characters of a wrong value


def concurrency(text: str) -> pulse.Concurrency | Literal["default"]:
    """Convert the value of an option to a number of jobs at once."""
    number = count(text)
    if number == DEFAULT:
        return DEFAULT
    import pulse

    try:
        return pulse.Concurrency(number)
    except pulse.InvalidArgument:
        raise click.BadParameter(
            f"{text[:_SHOWN]!r} is not a whole number from 1 to 1,000,000, or default."
        ) from None


def rate(text: str) -> pulse.Rate | Literal["default"]:
    """Convert the value of an option to a number of starts in a period."""
    if text.strip().lower() == DEFAULT:
        return DEFAULT
    import pulse

    try:
        starts, period = parse_rate(text)
        return pulse.Rate(starts, per=period)
    except ValueError as error:
        raise click.BadParameter(f"{str(error).removesuffix('.')}, or default.") from None
    except pulse.InvalidArgument:
        raise click.BadParameter(
            f"{text[:_SHOWN]!r} is out of bounds: from 1 to 1,000,000 starts, in a period from 100 "
            "milliseconds to 31 days."
        ) from None
