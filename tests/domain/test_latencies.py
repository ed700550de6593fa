"""Percentiles off buckets: never further from the truth than a bucket is wide."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_server.base.metrics import BOUNDS, SECONDS, Buckets, Latency, added_up, latency

FASTEST, SLOWEST = BOUNDS[0], BOUNDS[-1]
values = st.lists(st.floats(0, 2 * SLOWEST), min_size=1, max_size=200)


def counted(seconds: list[float]) -> Buckets:
    return Counter(bisect_left(BOUNDS, value) for value in seconds)


def estimated(seconds: list[float]) -> dict[float, float]:
    found = latency(counted(seconds))
    return {0.5: found.p50, 0.95: found.p95, 0.99: found.p99}


def test_bounds_reach_from_a_millisecond_to_a_day_and_grow_by_about_a_fifth() -> None:
    assert (FASTEST, SLOWEST, len(BOUNDS)) == (0.001, 86_400, 103)
    assert all(1.18 < high / low < 1.21 for low, high in pairwise(BOUNDS))


def test_buckets_of_a_scrape_are_sums_of_whole_ones() -> None:
    assert set(SECONDS) <= set(BOUNDS)


def test_nothing_has_no_percentiles() -> None:
    assert latency({}) == latency({7: 0}) == Latency(0, 0.0, 0.0, 0.0)


@given(values)
def test_estimate_lies_in_the_bucket_of_the_true_percentile(seconds: list[float]) -> None:
    for share, estimate in estimated(seconds).items():
        truth = sorted(seconds)[ceil(share * len(seconds)) - 1]
        bucket = bisect_left(BOUNDS, truth)
        assert (BOUNDS[bucket - 1] if bucket else 0) <= estimate <= BOUNDS[min(bucket, len(BOUNDS) - 1)]


@given(st.lists(st.floats(FASTEST, SLOWEST, exclude_min=True), min_size=1, max_size=200))
def test_estimate_is_within_a_fifth_of_the_truth(seconds: list[float]) -> None:
    for share, estimate in estimated(seconds).items():
        truth = sorted(seconds)[ceil(share * len(seconds)) - 1]
        assert truth / 1.21 <= estimate <= truth * 1.21


@given(values)
def test_higher_percentile_is_never_shorter(seconds: list[float]) -> None:
    estimates = list(estimated(seconds).values())

    assert estimates == sorted(estimates)


@given(values, st.integers(0, 199), st.floats(1, 100))
def test_job_that_takes_longer_makes_no_percentile_shorter(
    seconds: list[float], which: int, factor: float
) -> None:
    slower = list(seconds)
    slower[which % len(slower)] *= factor

    for before, after in zip(estimated(seconds).values(), estimated(slower).values(), strict=True):
        assert after >= before


@given(st.lists(values, max_size=5))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    whole = [value for part in parts for value in part]

    assert added_up(counted(part) for part in parts) == counted(whole)
    assert latency(counted(whole)).count == len(whole)


def test_duration_beyond_a_day_counts_as_a_day() -> None:
    assert latency({len(BOUNDS): 3}).p50 == SLOWEST


def test_percentiles_of_an_even_spread_are_nearly_exact() -> None:
    found = latency(counted([n / 1000 for n in range(1, 10_001)]))  # up to ten seconds

    assert (found.p50, found.p95, found.p99) == pytest.approx((5.0, 9.5, 9.9), rel=0.01)
