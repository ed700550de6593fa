"""The durations of the statements of a server between two samples of its metrics."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from benchmarks.counters import count_of

_METRIC = "pulse_statement_seconds"


class StatementTimes(NamedTuple):
    sent: int
    mean_ms: float
    p99_ms: float
    """As exact as the buckets: values are assumed to be spread evenly between two bounds."""


def statement_times(before: str, after: str, statement: str) -> StatementTimes:
    """Compare two texts of /metrics. A statement that was not sent in between took no time."""
    return _compared(before, after, f'statement="{statement}"')


def claim_times(before: str, after: str) -> StatementTimes:
    """Compare two texts of /metrics in all statements that claim."""
    return _compared(before, after, 'statement="claim')


def _compared(before: str, after: str, label: str) -> StatementTimes:
    def added(part: str) -> float:
        name = f"{_METRIC}_{part}"
        return count_of(after, name, label) - count_of(before, name, label)

    count = added("count")
    if not count:
        return StatementTimes(0, 0.0, 0.0)
    earlier = _buckets(before, label)
    spread = [(bound, value - earlier.get(bound, 0.0)) for bound, value in _buckets(after, label).items()]
    return StatementTimes(int(count), added("sum") / count * 1000, quantile(spread, 0.99) * 1000)


def quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """The value below which this share of a cumulative histogram lies, as Prometheus reckons it.

    Past the last bound nothing is known: then it is that bound.
    """
    ordered = sorted(buckets)
    rank = share * ordered[-1][1]
    lower, below = 0.0, 0.0
    for bound, cumulated in ordered:
        if cumulated >= rank:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (cumulated - below)
        lower, below = bound, cumulated
    return lower


def _buckets(metrics: str, label: str) -> dict[float, float]:
    lines = re.findall(rf"^{_METRIC}_bucket{{(.*)}} ([0-9.e+-]+)$", metrics, re.MULTILINE)
    found: dict[float, float] = {}
    for labels, value in lines:
        if label in labels:
            bound = re.search(r'le="([^"]+)"', labels)
            assert bound, labels
            found[float(bound[1])] = found.get(float(bound[1]), 0.0) + float(value)
    return found
