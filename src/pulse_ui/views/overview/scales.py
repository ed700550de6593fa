"""Scales of a chart: positions of values and moments, and the labeled ticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 4
"""Above the baseline. More would be closer than the height of a line of text."""

# The usual units instead of powers of ten.
_DURATIONS = (
    (0.001, "1 ms"),
    (0.01, "10 ms"),
    (0.1, "100 ms"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (21_600.0, "6 h"),
    (86_400.0, "1 d"),
    (864_000.0, "10 d"),
)

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value and its position: 0 is the bottom or the left, 1 the top or the right."""

    place: float
    label: str
    is_minor: bool = False
    """Labeled only if there is space."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions between 0 and 1."""

    ticks: tuple[Tick, ...]
    place: Callable[[float], float]


def linear(largest: float, label: Callable[[float], str], *, whole: bool = True) -> Scale:
    """Return a scale from 0 to a round value at or above the largest. `whole`: integer ticks only."""
    step = _round_step(largest / _MOST_TICKS)
    if whole:
        step = max(1.0, math.ceil(step))
    count = max(1, math.ceil(largest / step - 1e-9))
    top = step * count
    ticks = tuple(Tick(number / count, label(step * number)) for number in range(count + 1))
    return Scale(ticks, lambda value: min(1.0, max(0.0, value / top)))


def durations(shortest: float, longest: float) -> Scale:
    """Return a logarithmic scale of seconds between two round durations. 0 is at its bottom."""
    last = len(_DURATIONS) - 1
    low = max((at for at, (seconds, _) in enumerate(_DURATIONS) if seconds <= shortest), default=0)
    high = min((at for at, (seconds, _) in enumerate(_DURATIONS) if seconds >= longest), default=last)
    # At least two steps apart: small changes should not look like jumps.
    while high - low < 2:
        low, high = max(0, low - 1), min(last, high + 1)
    bottom = math.log(_DURATIONS[low][0])
    height = math.log(_DURATIONS[high][0]) - bottom

    def place(seconds: float) -> float:
        if seconds <= 0:
            return 0.0
        return min(1.0, max(0.0, (math.log(seconds) - bottom) / height))

    ticks = tuple(Tick(place(seconds), label) for seconds, label in _DURATIONS[low : high + 1])
    return Scale(ticks, place)


def clock_ticks(start: datetime, minutes: int, every: int, zone: ZoneInfo) -> tuple[Tick, ...]:
    """Return the round times of day of a span, in the zone.

    `every` is in minutes. Halfway between two of them is a minor tick.
    """
    ticks = []
    for number in range(minutes):
        there = (start + number * _MINUTE).astimezone(zone)
        minute_of_day = there.hour * 60 + there.minute
        if minute_of_day % (every // 2) == 0:
            ticks.append(Tick(number / minutes, f"{there:%H:%M}", is_minor=minute_of_day % every != 0))
    return tuple(ticks)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5, 10, 20, … at or above this."""
    if least <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(least))
    return next(step * size for step in _STEPS if step * size >= least * (1 - 1e-9))
