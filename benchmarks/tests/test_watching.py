"""What the benchmarks that watch something for a while make of what they saw."""

import random
from pathlib import Path

import pytest

from benchmarks.bloat import Bloat
from benchmarks.document import Document
from benchmarks.flawed_worker import DISCARDED, FAILS_ONCE, flawed_payload
from benchmarks.recorder import Recording
from benchmarks.scenarios.soak import judged
from benchmarks.series import Column, as_figures, as_table
from benchmarks.statement_times import claim_times, quantile, statement_times
from benchmarks.verdicts import Verdict, slope, stays_bounded, stays_flat
from benchmarks.vigil import Minute, Sample

BLOAT = Bloat(dead_rows=5, table_megabytes=1.0, indexes_megabytes=2.0, claim_index_megabytes=0.5)
NOISE = [random.Random(8).uniform(-1, 1) for _ in range(30)]


def test_full_recording_keeps_the_newest_pairs(tmp_path: Path) -> None:
    recording = Recording.create(tmp_path, capacity=4)
    for number in range(10):
        recording.hit(number, number + 0.5)

    assert recording.count == 10
    assert recording.pairs() == [(6, 6.5), (7, 7.5), (8, 8.5), (9, 9.5)]
    assert recording.pairs(since=9) == [(9, 9.5)]
    assert recording.pairs(since=10) == []
    recording.close()


@pytest.mark.parametrize("hits", [1, 3, 4, 5, 8, 9])
def test_recording_yields_each_pair_once_to_its_follower(tmp_path: Path, hits: int) -> None:
    recording = Recording.create(tmp_path, capacity=4)
    seen: list[tuple[float, float]] = []
    for number in range(hits):
        recording.hit(number, number)
        if number % 3 == 2:
            seen += recording.pairs(len(seen))
    seen += recording.pairs(len(seen))

    assert seen == [(number, number) for number in range(hits)]
    recording.close()


METRICS = """
pulse_statement_seconds_bucket{statement="claim_batch",le="0.001"} %d
pulse_statement_seconds_bucket{statement="claim_batch",le="0.01"} %d
pulse_statement_seconds_bucket{statement="claim_batch",le="+Inf"} %d
pulse_statement_seconds_sum{statement="claim_batch"} %f
pulse_statement_seconds_count{statement="claim_batch"} %d
pulse_statement_seconds_bucket{statement="reap_expired",le="+Inf"} 7
pulse_statement_seconds_count{statement="reap_expired"} 7
"""


def test_statements_are_counted_between_the_two_samples() -> None:
    before = METRICS % (50, 50, 50, 0.05, 50)
    after = METRICS % (50, 150, 150, 0.55, 150)

    times = statement_times(before, after, "claim_batch")

    assert times.sent == 100
    assert times.mean_ms == pytest.approx(5.0)
    assert times.p99_ms == pytest.approx(1.0 + 9.0 * 0.99), "all hundred lie in the second bucket"
    assert statement_times(before, after, "reap_expired") == (0, 0.0, 0.0)


def test_all_statements_that_claim_are_counted_together() -> None:
    one = METRICS % (0, 100, 100, 0.5, 100)
    other = one.replace("claim_batch", "claim_across_topics")

    times = claim_times(METRICS % (0, 0, 0, 0.0, 0), one + other)

    assert times.sent == 200
    assert times.mean_ms == pytest.approx(5.0)
    assert times.p99_ms == pytest.approx(1.0 + 9.0 * 0.99)


def test_quantile_past_the_last_bound_is_that_bound() -> None:
    assert quantile([(1.0, 10.0), (float("inf"), 100.0)], 0.99) == 1.0


def test_slope_is_that_of_the_line_whatever_the_outliers() -> None:
    values = [10 + 2.0 * number for number in range(20)]
    values[7] = 900.0

    assert slope(values) == pytest.approx(2.0)


def test_memory_that_wavers_is_flat() -> None:
    assert stays_flat("m", "MB", [80 + noise for noise in NOISE], tolerance=0.03, spare=1.0).is_good


def test_memory_that_grows_by_a_leak_is_not_flat_though_it_wavers() -> None:
    leaking = [80 + noise + 0.25 * minute for minute, noise in enumerate(NOISE)]

    verdict = stays_flat("m", "MB", leaking, tolerance=0.03, spare=1.0)

    assert verdict.is_good is False
    assert verdict.line.startswith("FAIL m: ")


def test_what_grows_during_the_warm_up_alone_is_flat() -> None:
    values = [50.0 + 3 * minute for minute in range(10)] + [80.0] * 20

    assert stays_flat("m", "MB", values, tolerance=0.03, spare=1.0).is_good


def test_what_becomes_less_is_flat() -> None:
    assert stays_flat("m", "MB", [90.0 - minute for minute in range(30)], tolerance=0.03, spare=1.0).is_good


def test_short_run_is_not_judged() -> None:
    assert stays_flat("m", "MB", [1.0, 100.0, 1000.0], tolerance=0.03, spare=1.0).is_good is None
    assert stays_bounded("t", "MB", [1.0, 100.0, 1000.0], tolerance=0.1).is_good is None


def test_size_that_goes_up_and_down_is_bounded_and_one_that_climbs_is_not() -> None:
    sawtooth = [100.0 * (1 + minute % 6) for minute in range(30)]

    assert stays_bounded("t", "MB", sawtooth, tolerance=0.1).is_good
    climbing = [value + 20 * minute for minute, value in enumerate(sawtooth)]
    assert stays_bounded("t", "MB", climbing, tolerance=0.1).is_good is False


def test_minute_has_the_latencies_of_all_its_samples_and_the_sizes_of_the_last() -> None:
    samples = [
        Sample(10.0, 60.0, 50.0, BLOAT, [1.0] * 50),
        Sample(10.0, 61.0, 51.0, BLOAT._replace(dead_rows=9), [5.0] * 150),
    ]

    minute = Minute.of(samples)

    assert minute.rate == 10.0
    assert (minute.p50, minute.p99) == (5.0, 5.0)
    assert (minute.server_megabytes, minute.worker_megabytes, minute.bloat.dead_rows) == (61.0, 51.0, 9)


def test_soak_that_falls_behind_its_rate_fails() -> None:
    steady = Minute(1000.0, 1.0, 2.0, 60.0, 50.0, BLOAT)

    assert {verdict.is_good for verdict in judged([steady] * 30, 1000.0)} == {True}
    slow = {verdict.about: verdict.is_good for verdict in judged([steady] * 30, 1100.0)}
    assert slow["rate"] is False


def test_of_a_hundred_jobs_five_fail_once_and_one_is_discarded() -> None:
    ends = [flawed_payload(number)["end"] for number in range(100)]

    assert (ends.count(FAILS_ONCE), ends.count(DISCARDED), ends.count("")) == (5, 1, 94)


def test_series_has_a_row_for_each_moment_and_a_figure_for_each_column() -> None:
    columns: list[Column[float]] = [
        Column("double", "MB", lambda value: 2 * value),
        Column("rare", "", lambda value: value if value > 1 else None),
    ]
    moments = {"before": 1.0, "after": 2.0}

    assert as_table(columns, moments).splitlines() == [
        "|  | double (MB) | rare |",
        "| --- | --- | --- |",
        "| before |        2.00 |      |",
        "|  after |        4.00 | 2.00 |",
    ]
    double, rare = as_figures("held", columns, moments)
    assert (double.repeats, double.note) == ([2.0, 4.0], "before … after")
    assert rare.repeats == [2.0]


def test_verdicts_are_kept_with_the_figures(tmp_path: Path) -> None:
    document = Document({}, [], 1, verdicts=(Verdict("rate", "as it should be", True),))
    document.write(tmp_path / "run.json")

    assert Document.read(tmp_path / "run.json") == document
