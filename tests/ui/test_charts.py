from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pulse import Latency, Minute
from pulse_ui.overview.charts import HEIGHT, LINE_WIDTH, NO_LATENCY, Bucket, Chart, buckets_of, charts_of
from pulse_ui.words import percent
from tests.rows import each_row

NINE = datetime(2024, 5, 6, 9, 0, tzinfo=UTC)
ZONE = ZoneInfo("UTC")


def minute(number: int, completed: int = 0, failed: int = 0, wait: Latency = NO_LATENCY) -> Minute:
    at = NINE + timedelta(minutes=number)
    return Minute(at, completed, completed, failed, 0, 0, 0, wait, NO_LATENCY)


def charts(minutes: Sequence[Minute], span: int = 60) -> dict[str, Chart]:
    drawn = charts_of(buckets_of(minutes, 1), span, NO_LATENCY, NO_LATENCY, ZONE)
    return {chart.name: chart for chart in drawn}


# ---------------------------------------------------------------- minutes put together


def test_minutes_are_put_together_at_round_times() -> None:
    buckets = buckets_of([minute(number, completed=1) for number in range(12)], 5)

    assert [(bucket.at.minute, bucket.completed) for bucket in buckets] == [(0, 5), (5, 5), (10, 2)]


def test_a_first_bucket_that_is_cut_off_is_left_out() -> None:
    buckets = buckets_of([minute(number, completed=1) for number in range(3, 12)], 5)

    assert [bucket.at.minute for bucket in buckets] == [5, 10]


def test_only_the_last_bucket_is_not_over() -> None:
    assert [bucket.is_over for bucket in buckets_of([minute(0), minute(1), minute(2)], 1)] == [
        True,
        True,
        False,
    ]


def test_a_bucket_has_the_percentiles_of_its_slowest_minute() -> None:
    slow, quick = Latency(1, 2.0, 3.0, 4.0), Latency(9, 0.1, 0.2, 5.0)
    (bucket,) = buckets_of([minute(0, wait=slow), minute(1, wait=quick), minute(2)], 5)

    assert bucket.wait == Latency(10, 2.0, 3.0, 5.0)


def test_without_minutes_there_are_no_charts() -> None:
    assert charts_of([], 60, NO_LATENCY, NO_LATENCY, ZONE) == ()


# ---------------------------------------------------------------- shapes


def test_failed_attempts_stand_on_the_completed_ones() -> None:
    completed, failed = charts([minute(0, completed=6, failed=2), minute(1)])["throughput"].bars

    assert completed.top + completed.height == pytest.approx(HEIGHT)
    assert failed.top + failed.height == pytest.approx(completed.top)
    assert completed.height == pytest.approx(3 * failed.height, abs=0.1)


def test_one_failure_among_thousands_is_seen() -> None:
    bars = charts([minute(0, completed=100_000, failed=1), minute(1)])["throughput"].bars

    assert bars[1].height >= 1


def test_the_bar_of_the_running_minute_is_marked() -> None:
    bars = charts([minute(0, completed=1), minute(1, completed=1)])["throughput"].bars

    assert [bar.is_over for bar in bars] == [True, False]


def test_all_shapes_lie_within_the_chart() -> None:
    chart = charts([minute(number, completed=number * 7, failed=number) for number in range(60)])[
        "throughput"
    ]

    for bar in chart.bars:
        assert 0 <= bar.left <= bar.left + bar.width <= 100.01
        assert 0 <= bar.top <= bar.top + bar.height <= HEIGHT + 0.01


def test_a_line_breaks_where_nothing_was_measured() -> None:
    minutes = [minute(0, 1), minute(1, 1), minute(2), minute(3, 1), minute(4, 1), minute(5)]

    (line,) = charts(minutes)["failures"].lines

    assert line.path.count("M") == 2
    assert line.dots == ""


def test_a_point_without_neighbors_is_a_dot() -> None:
    (line,) = charts([minute(0), minute(1, 1), minute(2), minute(3)])["failures"].lines

    assert (line.path, line.dots) == ("", f"M{1.5 * LINE_WIDTH / 4:g} {HEIGHT}h0")


def test_a_line_ends_before_the_minute_that_is_not_over() -> None:
    (line,) = charts([minute(0, 4), minute(1, 4), minute(2, 1)])["throughput"].lines

    assert line.path.count("L") == 1
    assert line.dots.count("M") == 1


def test_the_current_column_is_the_last_one() -> None:
    left, width = charts([minute(number) for number in range(4)])["throughput"].current

    assert (left, width) == (75, 25)


# ---------------------------------------------------------------- words


def test_each_column_has_its_exact_values() -> None:
    chart = charts([minute(0, completed=1_234, failed=5), minute(1)])["throughput"]

    assert (chart.readings[0].when, chart.readings[0].values) == ("09:00", ("1,234", "5", "1,234"))
    assert [series.name for series in chart.series] == ["Completed", "Failed", "Submitted"]


def test_a_reading_has_the_time_of_the_visitors_zone() -> None:
    drawn = charts_of(
        buckets_of([minute(number) for number in range(6)], 5),
        360,
        NO_LATENCY,
        NO_LATENCY,
        ZoneInfo("Asia/Tokyo"),
    )

    assert [reading.when for reading in drawn[0].readings] == ["18:00–18:05", "18:05–18:10"]


def test_what_was_not_measured_reads_as_a_dash() -> None:
    drawn = charts([minute(0), minute(1)])

    assert drawn["failures"].readings[0].values == ("–",)
    assert drawn["wait"].readings[0].values == ("–", "–", "–")


def test_an_empty_chart_is_marked_empty() -> None:
    assert all(chart.is_empty for chart in charts([minute(0), minute(1)]).values())


def test_a_chart_has_a_sentence_as_summary() -> None:
    assert charts([minute(0, completed=3, failed=1), minute(1)])["failures"].summary == (
        "25% of 4 attempts failed; at the worst 25% in a column."
    )


@each_row(
    "share, text",
    [
        (None, "–"),
        (0.0, "0%"),
        (0.0004, "< 0.1%"),
        (0.004, "0.4%"),
        (0.02, "2%"),
        (0.123, "12%"),
        (0.999, "99%"),
        (1.0, "100%"),
    ],
)
def test_a_share_never_reads_as_nothing_or_all_unless_it_is(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_the_failure_rate_of_a_bucket_without_attempts_is_unknown() -> None:
    assert Bucket(NINE, 1, True, 5, 0, 0, NO_LATENCY, NO_LATENCY).failure_rate is None
