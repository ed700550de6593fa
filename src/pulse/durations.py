"""Checks durations. A plain number is refused with the timedelta to write instead: its unit is a guess."""

from __future__ import annotations

from datetime import timedelta

from pulse.errors import InvalidArgument

LONGEST = timedelta(days=3650)
"""The longest delay that pulsed accepts. A result with a longer one would be refused, and lost."""


def check_duration(
    name: str, value: object, *, example: str = "minutes=5", may_be_zero: bool = False
) -> None:
    """Raise InvalidArgument unless the value is a timedelta above zero, or zero, of at most ten years."""
    check_timedelta(name, value, example=example)
    assert isinstance(value, timedelta)
    if value < timedelta(0) and may_be_zero:
        raise InvalidArgument(f"{name} cannot lie in the past, but {value} was given.")
    if value <= timedelta(0) and not may_be_zero:
        raise InvalidArgument(f"{name} has to be positive, but {value} was given.")


def check_timedelta(name: str, value: object, *, example: str = "minutes=5") -> None:
    """Raise InvalidArgument unless the value is a timedelta of at most ten years."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidArgument(f"{name} has to be a timedelta: write timedelta(seconds={value}).")
    if not isinstance(value, timedelta):
        raise InvalidArgument(
            f"{name} has to be a timedelta, such as timedelta({example}), but {value!r} was given."
        )
    if value > LONGEST:
        raise InvalidArgument(f"{name} has to be at most {LONGEST.days} days, but {value} was given.")
