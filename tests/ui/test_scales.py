from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_ui.overview import charts
from tests.rows import each_row

NINE = datetime(2024, 5, 6, 9, 0, tzinfo=UTC)


def labels(ticks: tuple[charts.Tick, ...]) -> list[str]:
    return [tick.label for tick in ticks]


@each_row(
    "largest, expected",
    [
        (0, ["0", "1"]),
        (1, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (7, ["0", "2", "4", "6", "8"]),
        (290, ["0", "100", "200", "300"]),
        (1_000_000, ["0", "250000", "500000", "750000", "1000000"]),
    ],
)
def test_a_scale_of_counts_has_few_round_whole_ticks(largest: int, expected: list[str]) -> None:
    assert labels(charts.linear(largest, lambda value: f"{value:.0f}").ticks) == expected


@given(st.floats(0, 1e12))
def test_a_linear_scale_holds_its_largest_value_in_at_most_five_ticks(largest: float) -> None:
    scale = charts.linear(largest, str, whole=False)

    assert 2 <= len(scale.ticks) <= 5
    assert 0 <= scale.place(largest) <= 1
    assert (scale.place(0), scale.ticks[-1].place) == (0, 1)


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_scale_of_durations_holds_whatever_is_given(one: float, other: float) -> None:
    shortest, longest = sorted((one, other))
    scale = charts.durations(shortest, longest)

    assert 0 <= scale.place(shortest) <= scale.place(longest) <= 1
    assert len(scale.ticks) >= 3
    assert [tick.place for tick in scale.ticks] == sorted(tick.place for tick in scale.ticks)


def test_durations_are_written_as_people_say_them() -> None:
    assert labels(charts.durations(0.02, 70).ticks) == ["10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min"]


def test_clock_ticks_stand_at_round_times_with_minor_ones_between() -> None:
    ticks = charts.clock_ticks(NINE.replace(minute=3), 60, 20, ZoneInfo("UTC"))

    assert [(tick.label, tick.is_minor) for tick in ticks] == [
        ("09:10", True),
        ("09:20", False),
        ("09:30", True),
        ("09:40", False),
        ("09:50", True),
        ("10:00", False),
    ]
    assert ticks[0].place == pytest.approx(7 / 60)


def test_clock_ticks_are_round_where_the_visitor_is() -> None:
    ticks = charts.clock_ticks(NINE, 360, 60, ZoneInfo("Asia/Kathmandu"))

    assert next(tick.label for tick in ticks if not tick.is_minor) == "15:00"


def test_an_hour_that_happens_twice_has_both_its_ticks() -> None:
    before_the_change = datetime(2024, 10, 27, 0, 0, tzinfo=UTC)
    ticks = charts.clock_ticks(before_the_change, 180, 60, ZoneInfo("Europe/Paris"))

    assert [tick.label for tick in ticks if not tick.is_minor] == ["02:00", "02:00", "03:00"]
