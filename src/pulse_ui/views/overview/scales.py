"""Scales and buckets of a chart: positions of values and moments, and the labeled ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from pulse import Latency, Minute

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


MINUTES_TOGETHER = {60: 1, 360: 5, 1_440: 20}
"""The minutes per column for each span: 60 to 72 columns."""
NO_LATENCY = Latency(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The counts of consecutive minutes."""

    at: datetime
    minutes: int
    is_over: bool
    """False for the current one, which still changes."""
    submitted: int
    completed: int
    failed: int
    wait: Latency
    """Of the slowest minute: percentiles cannot be summed, and the worst matters."""
    run: Latency
    ready: int | None = None
    """The most in a minute, as of the next two; None if nothing was sampled."""
    running: int | None = None
    oldest_seconds: float | None = None

    @property
    def until(self) -> datetime:
        return self.at + timedelta(minutes=self.minutes)

    @property
    def attempts(self) -> int:
        return self.completed + self.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None if there were none."""
        return self.failed / self.attempts if self.attempts else None


def buckets_of(minutes: Sequence[Minute], together: int) -> list[Bucket]:
    """Return the minutes in groups that start at round times, oldest first.

    An incomplete first group is left out: it would look like a drop.
    """
    timed = [(minute.at, minute) for minute in minutes if minute.at is not None]
    groups = [
        list(group)
        for _, group in groupby(timed, key=lambda pair: int(pair[0].timestamp()) // 60 // together)
    ]
    if len(groups) > 1 and len(groups[0]) < together:
        del groups[0]
    return [
        _bucket(group[0][0], [minute for _, minute in group], together, is_over=place < len(groups) - 1)
        for place, group in enumerate(groups)
    ]


def _bucket(at: datetime, minutes: Sequence[Minute], together: int, *, is_over: bool) -> Bucket:
    return Bucket(
        at=at,
        minutes=together,
        is_over=is_over,
        submitted=sum(minute.submitted for minute in minutes),
        completed=sum(minute.completed for minute in minutes),
        failed=sum(minute.failed for minute in minutes),
        wait=_slowest([minute.wait for minute in minutes]),
        run=_slowest([minute.run for minute in minutes]),
        ready=max((minute.ready for minute in minutes if minute.ready is not None), default=None),
        running=max((minute.running for minute in minutes if minute.running is not None), default=None),
        oldest_seconds=max(
            (minute.oldest_seconds for minute in minutes if minute.oldest_seconds is not None), default=None
        ),
    )


def _slowest(latencies: Sequence[Latency]) -> Latency:
    measured = [latency for latency in latencies if latency.count]
    if not measured:
        return NO_LATENCY
    return Latency(
        sum(latency.count for latency in measured),
        max(latency.p50 for latency in measured),
        max(latency.p95 for latency in measured),
        max(latency.p99 for latency in measured),
    )
