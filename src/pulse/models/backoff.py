"""The delays between the attempts of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pulse.checks import check_duration
from pulse.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays between attempts: `first`, then each `factor` times the last, at most `longest`.

    Each is drawn at random from the range of `jitter` around it: with 0.2, from 80% to 120%.
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_duration("Backoff(first=…)", self.first)
        check_duration("Backoff(longest=…)", self.longest)
        _check_number("Backoff(factor=…)", self.factor, 1, 100)
        _check_number("Backoff(jitter=…)", self.jitter, 0, 1)
        if self.longest < self.first:
            raise InvalidArgument(
                f"Backoff(longest={self.longest}) is shorter than first={self.first}: make it longer."
            )


def _check_number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidArgument(f"{name} has to be a number from {least} to {most}, but {value!r} was given.")
