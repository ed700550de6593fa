"""Rates are read back as they are written."""

from datetime import timedelta

import pytest

from pulse_text.rates import format_rate, parse_rate
from tests.rows import each_row


@each_row(
    "text, starts, period, written",
    [
        ("100/min", 100, timedelta(minutes=1), "100/min"),
        (" 5 / s ", 5, timedelta(seconds=1), "5/s"),
        ("1000/Hour", 1000, timedelta(hours=1), "1000/h"),
        ("3/1m30s", 3, timedelta(seconds=90), "3/1m30s"),
        ("1/24h", 1, timedelta(days=1), "1/d"),
        ("2/500ms", 2, timedelta(milliseconds=500), "2/500ms"),
    ],
)
def test_rate_is_read_and_written(text: str, starts: int, period: timedelta, written: str) -> None:
    assert parse_rate(text) == (starts, period)
    assert format_rate(starts, period) == written
    assert parse_rate(written) == (starts, period)


@each_row("text", ["", "100", "/min", "100/", "fast/min", "-1/s", "1.5/s", "100/fortnight"])
def test_text_that_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 100/min"):
        parse_rate(text)
