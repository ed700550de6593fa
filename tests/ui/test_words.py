"""Numbers, spans and moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pulse_ui import words
from pulse_ui.words import zone_named
from tests.rows import each_row

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@each_row(
    "seconds, said",
    [
        (0, "0 ms"),
        (0.0004, "< 1 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (1.44, "1.4 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (600, "10 min"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 400, "400 d"),
        (-5, "-5.0 s"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, said: str) -> None:
    assert words.span(seconds) == said


@each_row(
    "number, said",
    [
        (0, "0"),
        (999, "999"),
        (9_999, "9,999"),
        (12_345, "12.3k"),
        (250_000, "250k"),
        (1_000_000, "1M"),
        (2.5e9, "2.5G"),
    ],
)
def test_large_number_is_shortened(number: float, said: str) -> None:
    assert words.short_count(number) == said


@each_row("number, said", [(1, "1 job"), (0, "0 jobs"), (1_200, "1,200 jobs")])
def test_noun_follows_its_number(number: int, said: str) -> None:
    assert words.plural(number, "job") == said


def test_moment_is_in_the_zone_of_the_visitor() -> None:
    assert words.stamp(NOW, zone_named("Asia/Tokyo"), NOW) == "1 Mar 21:00:00"
    assert words.stamp(NOW - timedelta(days=365), zone_named("UTC"), NOW) == "1 Mar 2025 12:00:00"


@each_row("name", ["", "Nowhere/Land", "../../etc/passwd", "x" * 200, "Europe/Paris\n"])
def test_unknown_zone_is_utc(name: str) -> None:
    assert zone_named(name).key == "UTC"
