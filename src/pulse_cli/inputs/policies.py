"""Options whose value is an entry of a topic's policy: a value, or `default` to remove it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import click

from pulse_cli import tuning
from pulse_text.backoffs import parse_backoff
from pulse_text.times import parse_duration

if TYPE_CHECKING:
    import pulse

DEFAULT: Literal["default"] = "default"
_SHOWN = 40  # characters of a wrong value


def count(text: str) -> int | Literal["default"]:
    """Convert the value of an option to a whole number."""
    if _is_default(text):
        return DEFAULT
    if not text.strip().isdecimal():
        raise click.BadParameter(f"{text[:_SHOWN]!r} is not a whole number, such as 8, or default.")
    return int(text)


def attempts(text: str) -> int | Literal["default"]:
    """Convert the value of an option to a number of attempts that pulsed accepts."""
    number = count(text)
    if number != DEFAULT and not 1 <= number <= tuning.MOST_ATTEMPTS:
        raise click.BadParameter(
            f"{text[:_SHOWN]!r} is not a whole number from 1 to {tuning.MOST_ATTEMPTS:,}, or default."
        )
    return number


def limit(text: str) -> timedelta | Literal["default"]:
    """Convert the value of an option to a duration."""
    if _is_default(text):
        return DEFAULT
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{str(error).removesuffix('.')}, or default.") from None


def attempt_timeout(text: str) -> timedelta | Literal["default"]:
    """Convert the value of an option to a time limit of attempts that pulsed accepts."""
    span = limit(text)
    if span != DEFAULT and not timedelta(0) < span <= tuning.LONGEST_TIMEOUT:
        raise click.BadParameter(
            f"{text[:_SHOWN]!r} is out of bounds: longer than 0s, and at most "
            f"{tuning.LONGEST_TIMEOUT.days}d, or default."
        )
    return span


def backoff(text: str) -> pulse.Backoff | Literal["default"]:
    """Convert the value of an option to the delays between attempts."""
    if _is_default(text):
        return DEFAULT
    import pulse

    try:
        return pulse.Backoff(**parse_backoff(text))
    except ValueError as error:
        raise click.BadParameter(f"{str(error).removesuffix('.')}, or default.") from None
    except pulse.InvalidArgument as error:
        raise click.BadParameter(error.message) from None


def _is_default(text: str) -> bool:
    return text.strip().lower() == DEFAULT
