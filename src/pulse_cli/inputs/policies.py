"""Options whose value is an entry of a topic's policy: a value, or `default` to hand it back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import click

from pulse_text.backoffs import parse_backoff
from pulse_text.durations import parse_duration

if TYPE_CHECKING:
    import pulse

DEFAULT: Literal["default"] = "default"


def count(text: str) -> int | Literal["default"]:
    """Convert the value of an option to a number of attempts."""
    if _is_default(text):
        return DEFAULT
    if not text.strip().isdecimal():
        raise click.BadParameter(f"{text[:40]!r} is not a whole number, such as 8, or default.")
    return int(text)


def limit(text: str) -> timedelta | Literal["default"]:
    """Convert the value of an option to a time limit."""
    if _is_default(text):
        return DEFAULT
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{str(error).removesuffix('.')}, or default.") from None


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
