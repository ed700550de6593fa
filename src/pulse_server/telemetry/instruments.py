"""Counters, histograms and gauges that cost next to nothing to feed.

Only the thread of the event loop feeds them. Prometheus' client library locks for each value, which
would be a tenth of a job's cost here. These only keep numbers; text_format.py formats them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]

# Seconds, from a statement on an idle machine to a job that waited for an hour.
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0),
)
SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


@dataclass(slots=True)
class Counter:
    """Goes up. One number per combination of labels."""

    name: str
    help: str
    labels: Labels = ()
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        self.add_to(labels, by)

    def add_to(self, labels: Labels, by: float) -> None:
        self.values[labels] = self.values.get(labels, 0) + by


@dataclass(slots=True)
class Distribution:
    """How many values fell under each bound, and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class Histogram:
    """The distribution of values, one per combination of labels.

    If it counts in finer buckets than a scrape should carry, `scraped` has the scraped bounds.
    """

    name: str
    help: str
    bounds: Sequence[float]
    labels: Labels = ()
    values: dict[Labels, Distribution] = field(default_factory=dict)
    scraped: Sequence[float] | None = None

    def observe(self, *labels: str, value: float) -> None:
        self.observe_in(labels, (value,))

    def observe_in(self, labels: Labels, values: Sequence[float]) -> None:
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution([0] * (len(self.bounds) + 1))
        counts, bounds = found.counts, self.bounds
        if len(values) < 2 * len(bounds):
            for value in values:
                counts[bisect_left(bounds, value)] += 1
        else:
            _count_many(counts, bounds, sorted(values))
        found.total += sum(values)


def _count_many(counts: list[int], bounds: Sequence[float], values: Sequence[float]) -> None:
    """Count many sorted values: one search for each bound instead of one for each value."""
    begin = 0
    for place, bound in enumerate(bounds):
        end = bisect_right(values, bound, begin)
        counts[place] += end - begin
        begin = end
    counts[-1] += len(values) - begin


@dataclass(slots=True)
class Gauge:
    """Goes up and down. Read at a scrape: `read` returns a number per combination of labels.

    It is read on the event loop, so it must be quick and must not wait.
    """

    name: str
    help: str
    labels: Labels = ()
    read: Callable[[], dict[Labels, float]] = dict


Instrument = Counter | Histogram | Gauge
