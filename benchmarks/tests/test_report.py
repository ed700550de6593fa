"""What the benchmarks report is what was measured."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import machine, report
from benchmarks.counters import Transactions, count_of
from benchmarks.document import Document
from benchmarks.figures import WITHOUT_PGO, Figure, percentile, written
from benchmarks.meters import Process, family
from benchmarks.plots import Row, bar_chart
from benchmarks.tables import Figures, one_by_one, side_by_side
from tests.rows import each_row

MACHINE = {
    "cores": 2,
    "architecture": "arm",
    "processor": "",
    "memory_gib": 4,
    "kernel": "Linux 6",
    "python": "3.11",
    "python_build": "PGO and LTO, by its configure options",
    "plain_python": "3.11.7 (no PGO, no LTO, by its configure options)",
    "postgres": {
        "server_version": "18",
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "128MB",
        "max_wal_size": "1GB",
    },
    "packages": {"pulse": "1.2.3"},
}
DRAIN = Figure("drain", "20,000 jobs, 1 worker process", "jobs/s", [900.0, 1000.0, 2000.0])
LIMIT = Figure("drain", "claim + complete", "jobs/s", [4000.0], system="raw")
PEER = Figure("drain", "20,000 jobs, 1 worker process", "jobs/s", [500.0], "a | b", system="other")
SVG = "{http://www.w3.org/2000/svg}"


def test_machine_line_names_the_builds_of_the_interpreters() -> None:
    line = machine.line(MACHINE)
    assert "Python 3.11 (PGO and LTO, by its configure options)" in line
    assert "3.11.7 (no PGO, no LTO, by its configure options) where a figure says so" in line


def test_median_and_spread_are_those_of_the_repeats() -> None:
    assert DRAIN.median == 1000
    assert DRAIN.spread == (900, 2000)


def test_share_of_a_rate_is_the_part_of_the_limit_that_was_reached() -> None:
    compared = DRAIN.beside(LIMIT)
    assert compared.share == 0.25
    assert compared.of == LIMIT.name


def test_share_of_a_latency_is_one_at_the_limit_and_less_above_it() -> None:
    limit = Figure("idle", "raw", "ms", [1.0])
    assert Figure("idle", "p50", "ms", [4.0]).beside(limit).share == 0.25


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.0) == 1
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100


@each_row(
    "value, text",
    [(21_600.4, "21,600"), (99.96, "100.0"), (12.34, "12.3"), (3.456, "3.46"), (0.0312, "0.031")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert written(value) == text


def test_document_reads_back_as_it_was_written(tmp_path: Path) -> None:
    document = Document(MACHINE, [DRAIN.beside(LIMIT), LIMIT, PEER], 3, 1, is_trial=True)
    document.write(tmp_path / "run.json")
    assert Document.read(tmp_path / "run.json") == document
    assert json.loads((tmp_path / "run.json").read_text())["figures"][0]["median"] == 1000


def test_systems_stand_side_by_side_and_pulse_first() -> None:
    lines = side_by_side(Figures([PEER, DRAIN, LIMIT])).splitlines()
    assert lines[0] == "|  | drain, 1 process (jobs/s) |"
    assert lines[2:] == ["| **pulse** | 1,000 |", "| other | 500 |"]


def test_drain_on_a_plain_interpreter_stands_below_the_one_on_an_optimized_one() -> None:
    plain = replace(DRAIN, name=DRAIN.name + WITHOUT_PGO, repeats=[800.0])
    lines = side_by_side(Figures([DRAIN, plain, PEER])).splitlines()
    assert lines[2:] == ["| **pulse** | 1,000 |", "| pulse, Python without PGO | 800 |", "| other | 500 |"]


def test_every_row_of_a_table_has_as_many_cells_as_its_heading() -> None:
    lines = one_by_one([DRAIN.beside(LIMIT), PEER], with_system=True).replace("\\|", "").splitlines()
    assert {line.count("|") for line in lines} == {8}


def test_tables_replace_what_stood_between_their_markers_only() -> None:
    page = "before\n<!-- figures: begin raw -->\nold\n<!-- figures: end raw -->\nafter\n"
    once = report.filled(page, {"raw": r"new \1"})
    assert once == "before\n<!-- figures: begin raw -->\nnew \\1\n<!-- figures: end raw -->\nafter\n"
    assert report.filled(once, {"raw": r"new \1"}) == once


def test_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(report.MissingBlock, match="raw"):
        report.filled("nothing here", {"raw": "table"})


def test_pages_of_the_docs_have_a_place_for_every_table() -> None:
    for path, contents in report.by_page(report.blocks(Document(MACHINE, [DRAIN], 3))).items():
        page = path.read_text(encoding="utf-8")
        report.filled(page, contents)
        assert page.count("<!-- figures: begin") == len(contents) > 0


def test_page_of_the_docs_shows_every_plot() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    names = ("8 producers", "20,000 in bulk", "20,000 jobs, 1 worker process", "2 processes × 80")
    scenarios = ("submit", "bulk", "drain", "e2e")
    figures = [
        Figure(scenario, name, "jobs/s", [1.0]) for scenario, name in zip(scenarios, names, strict=True)
    ]
    figures += [
        Figure("e2e", "2 processes × 80, p50", "ms", [1.0]),
        Figure("idle", "submit → start, p50", "ms", [1.0]),
    ]
    assert sorted(report.pictures(Figures(figures))) == sorted(
        name
        for name in (
            "bench-submit",
            "bench-bulk",
            "bench-drain",
            "bench-e2e",
            "bench-e2e-latency",
            "bench-idle",
        )
        if f"(images/{name}.svg)" in page
    )


def test_trial_says_that_its_figures_mean_nothing() -> None:
    assert "mean nothing" in report.blocks(Document(MACHINE, [DRAIN], 1, is_trial=True))["machine"]
    assert "mean nothing" not in report.blocks(Document(MACHINE, [DRAIN], 3))["machine"]


def test_bars_are_as_long_as_their_values_and_show_them() -> None:
    chart = ElementTree.fromstring(
        bar_chart("A < B", "jobs/s", [Row("ours", [1000.0], True), Row("b", [250.0])])
    )
    _, ours, theirs = (float(rect.attrib["width"]) for rect in chart.iter(f"{SVG}rect"))
    assert ours == pytest.approx(4 * theirs)
    words = [text.text for text in chart.iter(f"{SVG}text")]
    assert {"A < B", "ours", "1,000", "250"} <= set(words)


def test_pulse_has_a_color_of_its_own() -> None:
    chart = ElementTree.fromstring(bar_chart("", "ms", [Row("ours", [1.0], True), Row("b", [2.0])]))
    _, ours, theirs = (rect.attrib["fill"] for rect in chart.iter(f"{SVG}rect"))
    assert ours != theirs


def test_no_bar_is_longer_than_the_picture_is_wide() -> None:
    rows = [Row("fast", [0.5, 1.0]), Row("slow", [3000.0, None])]
    chart = ElementTree.fromstring(bar_chart("", "ms", rows, series=("p50", "p99"), is_logarithmic=True))
    background, *bars = (float(rect.attrib["width"]) for rect in chart.iter(f"{SVG}rect"))
    assert len(bars) == 3
    assert all(0 < width < background - 200 for width in bars)


def test_own_questions_do_not_count_as_transactions_of_the_server() -> None:
    assert Transactions(150, 3).since(Transactions(100, 1), own=20) == Transactions(30, 2)


def test_metric_is_summed_over_its_labels_and_no_longer_name_is() -> None:
    text = 'jobs_total{topic="a"} 2\njobs_total{topic="b"} 3.5\njobs_total_more 100\n# HELP jobs_total 7\n'
    assert count_of(text, "jobs_total") == 5.5
    assert count_of(text, "jobs_total", 'topic="b"') == 3.5


def test_family_is_a_process_with_all_its_descendants_and_no_other() -> None:
    processes = {pid: Process(parent, 0, 0, 1, 0) for pid, parent in {1: 0, 2: 1, 3: 2, 4: 1, 5: 3}.items()}
    assert family(processes, [2]) == {2, 3, 5}
    assert family(processes, [3, 99]) == {3, 5}
