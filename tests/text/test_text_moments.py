"""Moments as they are typed, and in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pulse_text.times import iso, parse_moment, parse_past_moment
from tests.rows import each_row

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def test_moment_is_iso_in_utc_for_programs() -> None:
    assert iso(parse_moment("2030-01-31T13:00+01:00")) == "2030-01-31T12:00:00Z"


def test_moment_without_an_offset_is_in_the_zone_given() -> None:
    assert parse_moment("2030-01-31 21:00", ZoneInfo("Asia/Tokyo")) == NOON
    assert parse_moment("2030-01-31T13:00+01:00", ZoneInfo("Asia/Tokyo")) == NOON


def test_past_moment_is_how_long_ago_or_when() -> None:
    assert parse_past_moment("2h", present=NOON) == NOON - timedelta(hours=2)
    assert parse_past_moment("2030-01-31 12:00", present=NOON, zone=UTC) == NOON


@each_row("text", ["yesterday", "2", "9999999w", "0001-01-01T00:00+14:00"])
def test_what_is_not_a_past_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        parse_past_moment(text, present=NOON, zone=UTC)
