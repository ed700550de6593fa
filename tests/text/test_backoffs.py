"""The delays between attempts, typed and written."""

from __future__ import annotations

from datetime import timedelta

import pytest

import pulse
from pulse_text.backoffs import describe_backoff, format_backoff, parse_backoff
from tests.rows import each_row

SECOND = timedelta(seconds=1)


@each_row(
    "backoff",
    [
        pulse.Backoff(first=2 * SECOND, factor=3, longest=timedelta(hours=6), jitter=0.2),
        pulse.Backoff(first=500 * timedelta(milliseconds=1), factor=1.5, jitter=0),
        pulse.Backoff(first=timedelta(days=2), longest=timedelta(days=2)),
    ],
)
def test_written_backoff_is_read_back(backoff: pulse.Backoff) -> None:
    assert pulse.Backoff(**parse_backoff(format_backoff(backoff))) == backoff


def test_all_but_the_first_delay_may_be_left_out() -> None:
    assert pulse.Backoff(**parse_backoff(" First = 2s ")) == pulse.Backoff(first=2 * SECOND)
    long = pulse.Backoff(**parse_backoff("first=3h"))
    assert (long.first, long.longest) == (timedelta(hours=3), timedelta(hours=3))


@each_row(
    "backoff, words",
    [
        (
            pulse.Backoff(first=2 * SECOND, factor=3, longest=timedelta(hours=6)),
            "2s, then ×3, up to 6h, ±20%",
        ),
        (pulse.Backoff(first=SECOND, jitter=0), "1s, then ×2, up to 1h"),
        (pulse.Backoff(first=30 * SECOND, factor=1, jitter=0.1), "always 30s, ±10%"),
    ],
)
def test_backoff_in_words(backoff: pulse.Backoff, words: str) -> None:
    assert describe_backoff(backoff) == words


@each_row(
    "text, sentence",
    [
        ("", "'' is not a backoff: write for example first=2s,factor=3"),
        ("2s", "is not a backoff"),
        ("first=2s,first=3s", "is not a backoff"),
        ("first=2s,speed=3", "is not a backoff"),
        ("factor=3", "has no first delay"),
        ("first=soon", "'soon' is not a duration"),
        ("first=2s,factor=fast", "factor='fast' is not a number"),
    ],
)
def test_text_that_is_no_backoff_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_backoff(text)
