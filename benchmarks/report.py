"""Writes a run into the pages of docs/ and draws its plots: `python -m benchmarks.report FILE.json`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import limit_targets, machine, targets
from benchmarks.document import Document
from benchmarks.figures import Figure, best
from benchmarks.plots import Row, bar_chart
from benchmarks.tables import OURS, Figures, one_by_one, side_by_side

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PEERS_PAGE = DOCS / "benchmarks-peers.md"
IMAGES = DOCS / "images"
# The blocks that stand on the page of the peers.
OF_PEERS = frozenset({"peers"})


class MissingBlock(Exception):
    """The page has no place for the named block."""


def write(document: Document) -> None:
    """Replace the tables between the markers of the pages, and the plots."""
    for page, contents in by_page(blocks(document)).items():
        page.write_text(filled(page.read_text(encoding="utf-8"), contents), encoding="utf-8")
    IMAGES.mkdir(exist_ok=True)
    for name, picture in pictures(Figures(document.figures)).items():
        (IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")


def by_page(contents: Mapping[str, str]) -> dict[Path, dict[str, str]]:
    """Return the blocks of each page."""
    pages: dict[Path, dict[str, str]] = {PAGE: {}, PEERS_PAGE: {}}
    for name, content in contents.items():
        pages[PEERS_PAGE if name in OF_PEERS else PAGE][name] = content
    return pages


def filled(text: str, contents: Mapping[str, str]) -> str:
    """Return the page with each block's content between its markers. MissingBlock if it has no such place."""
    for name, content in contents.items():
        begin, end = f"<!-- figures: begin {name} -->", f"<!-- figures: end {name} -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise MissingBlock(name)
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


def blocks(document: Document) -> dict[str, str]:
    """Return the text between the markers, by the name of the block."""
    figures = Figures(document.figures)
    return {
        "machine": _about(document),
        "systems": side_by_side(figures),
        "targets": targets.as_table(targets.judge(figures, has_pgo=document.machine.get("has_pgo"))),
        "pulse": one_by_one(_others(figures.of_ours())),
        "limits": limit_targets.as_block(figures),
        "raw": one_by_one(_others(figures.of_limits())),
        "peers": one_by_one(_others(figures.of_peers()), with_system=True),
    }


def _others(figures: Iterable[Figure]) -> list[Figure]:
    """The figures that do not concern limits, which have a separate block."""
    return [figure for figure in figures if not limit_targets.is_of_limits(figure)]


def _about(document: Document) -> str:
    sentences = [f"{machine.line(document.machine)}. Median of {document.repeats}."]
    if document.disturbed_runs:
        sentences.append(
            f"In {document.disturbed_runs} of the runs that count, others used more than a quarter of a core."
        )
    if document.is_trial:
        sentences.insert(0, "**A trial with a twentieth of the work: these figures mean nothing.**")
    return " ".join(sentences)


def pictures(figures: Figures) -> dict[str, str]:
    """Return the plots that the figures suffice for, by the name of the file."""
    drawn = {
        "bench-submit": _rates(figures, "Submit, 8 producers", "submit", "8 producers"),
        "bench-bulk": _rates(figures, "Bulk, 20,000 jobs", "bulk", "20,000 in bulk"),
        "bench-drain": _rates(
            figures,
            "Drain of 20,000 jobs",
            "drain",
            "20,000 jobs, 1 worker process",
            "20,000 jobs, 2 worker processes",
            series=("1 worker process", "2 worker processes"),
        ),
        "bench-e2e": _rates(
            figures,
            "End to end, 8 producers and 160 slots",
            "e2e",
            "2 processes × 80",
            "8 processes × 20",
            series=("2 processes × 80", "8 processes × 20"),
        ),
        "bench-e2e-latency": _latencies(
            figures,
            "End to end, from submit to start, p50",
            "e2e",
            "2 processes × 80, p50",
            "8 processes × 20, p50",
            series=("2 processes × 80", "8 processes × 20"),
        ),
        "bench-idle": _latencies(
            figures,
            "Idle queue, from submit to start",
            "idle",
            "submit → start, p50",
            "submit → start, p99",
            series=("p50", "p99"),
        ),
    }
    return {name: picture for name, picture in drawn.items() if picture}


def _rates(
    figures: Figures, title: str, scenario: str, *names: str, series: tuple[str, ...] = ()
) -> str | None:
    rows = sorted(_rows(figures, scenario, names), key=_most, reverse=True)
    if not rows:
        return None
    limits = [figure for figure in figures.of_limits() if figure.scenario == scenario]
    # Submits one at a time are no batches: the limit would only dwarf them.
    if limits and scenario != "submit":
        # One for each series, where there are as many: with one connection, and with two.
        shown = limits if len(limits) == len(names) else [best(limits)]
        rows.insert(0, Row("raw SQL", [figure.median for figure in shown], is_limit=True))
    return bar_chart(title, "jobs/s", rows, series=series)


def _latencies(
    figures: Figures, title: str, scenario: str, *names: str, series: tuple[str, ...]
) -> str | None:
    rows = sorted(_rows(figures, scenario, names), key=_least)
    if not rows:
        return None
    limits = [
        figure
        for figure in figures.of_limits()
        if figure.scenario == scenario and figure.name.endswith(series)
    ]
    if limits:
        rows.insert(0, Row("raw SQL", [figure.median for figure in limits], is_limit=True))
    return bar_chart(title, "ms", rows, series=series, is_logarithmic=True)


def _rows(figures: Figures, scenario: str, names: tuple[str, ...]) -> list[Row]:
    rows = []
    for system in figures.systems:
        found = [figures.find(system, scenario, name) for name in names]
        if any(found):
            rows.append(Row(system, [_median(figure) for figure in found], is_ours=system == OURS))
    return rows


def _median(figure: Figure | None) -> float | None:
    return figure.median if figure else None


def _most(row: Row) -> float:
    return max(value for value in row.values if value is not None)


def _least(row: Row) -> float:
    return min(value for value in row.values if value is not None)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m benchmarks.report FILE.json", file=sys.stderr)
        return 2
    write(Document.read(Path(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
