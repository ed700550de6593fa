"""The settings of a topic as texts: read back as written, in words, and refused with a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse.topic_settings import (
    BACKOFF,
    DEFAULT,
    ENTRIES,
    RATE,
    check,
    check_together,
    from_json,
    to_json,
    within_all,
)
from tests.rows import each_row

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def parsed(name: str, text: str) -> Any:
    return ENTRIES[name].parse(text)


@each_row("name", list(ENTRIES))
def test_example_of_each_entry_is_a_value_that_is_read_back(name: str) -> None:
    entry = ENTRIES[name]
    value = entry.parse(entry.example)
    assert entry.parse(entry.text(value)) == value
    assert from_json(to_json({name: value})) == {name: value}
    assert entry.help.endswith(".")


@each_row("name", list(ENTRIES))
def test_default_and_nothing_hand_an_entry_back(name: str) -> None:
    assert parsed(name, " Default ") == DEFAULT
    assert parsed(name, "") == DEFAULT


@each_row(
    "text, starts, period, written",
    [
        ("100/min", 100, MINUTE, "100/min"),
        (" 5 / s ", 5, SECOND, "5/s"),
        ("1000/Hour", 1000, timedelta(hours=1), "1000/h"),
        ("3/1m30s", 3, timedelta(seconds=90), "3/1m30s"),
        ("1/24h", 1, timedelta(days=1), "1/d"),
        ("2/500ms", 2, timedelta(milliseconds=500), "2/500ms"),
    ],
)
def test_rate_is_read_and_written(text: str, starts: int, period: timedelta, written: str) -> None:
    rate = pulse.Rate(starts, per=period)
    assert RATE.parse(text) == rate
    assert str(rate) == written
    assert RATE.parse(written) == rate


@each_row("text", ["100", "/min", "100/", "fast/min", "-1/s", "1.5/s", "100/fortnight"])
def test_text_that_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 100/min"):
        parsed("rate", text)


@each_row(
    "backoff",
    [
        pulse.Backoff(first=2 * SECOND, factor=3, longest=timedelta(hours=6), jitter=0.2),
        pulse.Backoff(first=500 * timedelta(milliseconds=1), factor=1.5, jitter=0),
        pulse.Backoff(first=timedelta(days=2), longest=timedelta(days=2)),
    ],
)
def test_written_backoff_is_read_back(backoff: pulse.Backoff) -> None:
    assert BACKOFF.parse(str(backoff)) == backoff


def test_all_but_the_first_delay_may_be_left_out() -> None:
    assert BACKOFF.parse(" First = 2s ") == pulse.Backoff(first=2 * SECOND)
    long = BACKOFF.parse("first=3h")
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
    assert ENTRIES["backoff"].words(backoff) == words


@each_row(
    "name, stored",
    [
        ("running", 5_000_000),
        ("running", "5"),
        ("rate", {"starts": 0, "period": 60}),
        ("rate", {"starts": 5}),
        ("rate", 5),
        ("aging", 1e300),
        ("backoff", {"first": 1}),
        ("keep_completed", "for a while"),
        ("attempt_timeout", None),
    ],
)
def test_stored_value_that_this_version_does_not_take_is_left_out(name: str, stored: Any) -> None:
    assert from_json({name: stored, "of_a_later_version": 3, "max_attempts": 8}) == {"max_attempts": 8}


def test_texts_for_people_are_one_line_and_name_what_is_not_set() -> None:
    assert ENTRIES["pool"].words("g\x1bpu") == "g\\x1bpu"
    assert ENTRIES["attempt_timeout"].words(None) == "none"


@each_row(
    "name, text, sentence",
    [
        ("running", "many", "'many' is not a whole number from 1 to 1,000,000"),
        ("running", "²", "is not a whole number"),
        ("running", "0", "running is 0: it must be from 1 to 1,000,000"),
        ("per_lane", "1000001", "per_lane is 1000001: it must be from 1"),
        ("max_attempts", "1001", "max_attempts is 1001: it must be from 1 to 1,000"),
        ("max_crashes", "9" * 30, "is not a whole number from 1 to 1,000"),
        ("rate", "0/s", "rate has 0 starts: they must be from 1"),
        (
            "lane_rate",
            "1/1ms",
            "lane_rate has a period of 0:00:00.001000: it must be a duration",
        ),
        ("aging", "400d", "aging is 400d: it must be above zero and at most 365 days"),
        ("aging", "0s", "aging is 0:00:00: it must be above zero"),
        ("attempt_timeout", "soon", "'soon' is not a duration"),
        ("attempt_timeout", "3651d", "attempt_timeout is 3651d: it must be above zero and at most 3650 days"),
        ("keep_completed", "5s", "keep_completed is 5s, below a minute"),
        ("keep_completed", "99999d", "keep them forever instead"),
        ("keep_canceled", "soon", "or forever"),
        ("turns", "perhaps", "'perhaps' is neither yes nor no"),
        ("pool", "g p u", "'g p u' is not allowed: use letters, digits"),
        ("pool", "x" * 300, "pool has 300 characters; 255 are allowed"),
        ("backoff", "2s", "is not a backoff: write for example first=2s,factor=3"),
        ("backoff", "first=2s,first=3s", "is not a backoff"),
        ("backoff", "first=2s,speed=3", "is not a backoff"),
        ("backoff", "factor=3", "has no first delay"),
        ("backoff", "first=soon", "'soon' is not a duration"),
        ("backoff", "first=2s,factor=fast", "factor='fast' is not a number"),
        ("backoff", "first=2s,factor=500", "backoff has a factor of 500.0: it must be from 1 to 100"),
        ("backoff", "first=2h,longest=1h", "backoff has a longest delay that is shorter than first"),
    ],
)
def test_text_that_is_no_value_is_refused_with_a_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parsed(name, text)


@each_row(
    "entries, sentence",
    [
        ({"running": True}, "running is True: it must be a whole number"),
        ({"max_crashes": 2.5}, "max_crashes is 2.5: it must be a whole number from 1 to 1,000"),
        ({"rate": 10}, "rate is 10: it must be such as pulse.Rate"),
        ({"backoff": MINUTE}, "backoff is .*: it must be such as pulse.Backoff"),
        ({"attempt_timeout": 60}, r"attempt_timeout has to be a timedelta: write timedelta\(seconds=60\)"),
        ({"keep_completed": "default"}, "keep_completed is 'default': it must be a timedelta"),
        ({"turns": 1}, "turns is 1: it must be True or False"),
        ({"pool": 3}, "pool is 3: it must be a name"),
        ({"pool": ""}, "pool is empty: name what its topics share, such as 'gpu'"),
        ({"speed": 3}, "'speed' is no setting of a topic: the settings are running, rate"),
    ],
)
def test_value_of_the_wrong_kind_is_refused_with_a_sentence(entries: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check(entries)


def test_code_declares_limits_and_runs_and_no_retention() -> None:
    check({"running": 5, "max_crashes": 3}, code=True)
    with pytest.raises(ValueError, match="keep_completed cannot be declared in code: an operator sets it"):
        check({"keep_completed": MINUTE}, code=True)


@each_row(
    "entries, sentence",
    [
        ({"pool": "gpu"}, "pool has neither running nor a rate to share"),
        ({"ordered": True, "per_lane": 2}, "ordered needs one job of a lane at a time, and per_lane is 2"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(entries: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_together(entries)
    check_together({"pool": "gpu", "running": 1, "ordered": True, "per_lane": 1})


def test_rate_within_all_exceeds_none_in_any_of_their_periods() -> None:
    assert within_all([pulse.Rate(2, SECOND), pulse.Rate(60, MINUTE)]) == pulse.Rate(2, 2 * SECOND)
