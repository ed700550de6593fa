"""Durations as they are typed and written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_text.times import format_duration, format_exact, parse_duration
from tests.rows import each_row


@each_row(
    "text, seconds",
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1d", 86400),
        ("5 min", 300),
    ],
)
def test_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@each_row("text", ["", "5", "m", "-5m", "5 minutes", "5m5", "1e9h", "9" * 30 + "d"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_exact_duration_is_read_back(milliseconds: int) -> None:
    span = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_exact(span)) == span


@each_row(
    "seconds, text",
    [(0, "0s"), (0.085, "85ms"), (1.24, "1.2s"), (59.4, "59s"), (61, "1m1s"), (3600, "1h"), (90061, "1d1h")],
)
def test_duration_is_written_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text
