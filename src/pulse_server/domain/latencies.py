"""Durations, counted in buckets that grow by about a fifth, and percentiles of the buckets.

A bucket's number is stored with its count (pulse.topic_minutes), so the bounds never change: others would
give the stored minutes another meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

# Seconds. Each mark is a bound, so that the buckets between two marks can be added up.
_MARKS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 86_400.0),
)
_GROWTH = 1.2
_SHARES = (0.5, 0.95, 0.99)


def _bounds() -> Iterator[float]:
    for low, high in pairwise(_MARKS):
        steps = round(math.log(high / low, _GROWTH))
        for step in range(steps):
            yield low * math.pow(high / low, step / steps)
    yield _MARKS[-1]


# 103 bounds, from a millisecond to a day. Bucket n holds values above BOUNDS[n - 1] and up to
# BOUNDS[n]; the first bucket has no lower bound, and the last, len(BOUNDS), no upper bound.
BOUNDS = tuple(_bounds())

Buckets: TypeAlias = Mapping[int, int]
"""How many values each bucket holds. Empty buckets are left out."""
NOTHING: Buckets = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Latency:
    """The count, and the percentiles in seconds."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


def latency(buckets: Buckets) -> Latency:
    """Compute the percentiles of the buckets. All zeros if they are empty."""
    count = sum(buckets.values())
    if not count:
        return Latency()
    ranks = [count * share for share in _SHARES]
    estimates: list[float] = []
    below = 0
    for bucket in sorted(buckets):
        inside = buckets[bucket]
        # A rank's value is in the first bucket whose cumulative count reaches the rank.
        while len(estimates) < len(ranks) and below + inside >= ranks[len(estimates)]:
            estimates.append(_inside(bucket, (ranks[len(estimates)] - below) / inside))
        below += inside
    return Latency(count, *estimates)


def added_up(many: Iterable[Buckets]) -> dict[int, int]:
    """The sum of all buckets."""
    total: dict[int, int] = {}
    for buckets in many:
        for bucket, count in buckets.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def _inside(bucket: int, share: float) -> float:
    """Interpolate in the bucket, on a logarithmic scale."""
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    high = BOUNDS[bucket]
    if bucket == 0:
        return high * share  # down to nothing, which no logarithm reaches
    low = BOUNDS[bucket - 1]
    return min(high, low * math.pow(high / low, share))
