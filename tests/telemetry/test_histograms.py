"""Histograms: many values at once are counted as each of them alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.base.metrics import BOUNDS, Histogram

VALUES = st.one_of(st.floats(0, 1e6), st.sampled_from(BOUNDS))


@settings(max_examples=25)  # each is long
@given(st.lists(VALUES, min_size=2 * len(BOUNDS), max_size=4 * len(BOUNDS)))
def test_batch_is_counted_as_its_values_one_by_one(values: list[float]) -> None:
    together, alone = Histogram("t", "T.", BOUNDS), Histogram("a", "A.", BOUNDS)

    together.observe_in((), values)
    for value in values:
        alone.observe(value=value)

    assert together.values[()].counts == alone.values[()].counts
