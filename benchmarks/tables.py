"""Figures as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.figures import WITHOUT_PGO, Figure, written

_NOTHING = "–"
OURS = "pulse"
LIMIT = "raw"


class Figures:
    """The figures of a run, to be found by system, scenario and name."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.all = list(figures)
        self._found = {(figure.system, figure.scenario, figure.name): figure for figure in self.all}

    def find(self, system: str, scenario: str, name: str) -> Figure | None:
        return self._found.get((system, scenario, name))

    @property
    def systems(self) -> list[str]:
        """Pulse and its peers, in the order in which they were measured."""
        return list(dict.fromkeys(figure.system for figure in self.all if figure.system != LIMIT))

    def of_ours(self) -> list[Figure]:
        return [figure for figure in self.all if figure.system == OURS]

    def of_limits(self) -> list[Figure]:
        return [figure for figure in self.all if figure.system == LIMIT]

    def of_peers(self) -> list[Figure]:
        return [figure for figure in self.all if figure.system not in (OURS, LIMIT)]


# The columns: a heading, a scenario, and the names of the figures that share the cell.
COLUMNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("submit, 8 producers (jobs/s)", "submit", ("8 producers",)),
    ("bulk, 20,000 (jobs/s)", "bulk", ("20,000 in bulk",)),
    ("drain, 1 process (jobs/s)", "drain", ("20,000 jobs, 1 worker process",)),
    ("drain, 2 processes (jobs/s)", "drain", ("20,000 jobs, 2 worker processes",)),
    ("e2e, 2 × 80 (jobs/s)", "e2e", ("2 processes × 80",)),
    ("its p50 / p95 (ms)", "e2e", ("2 processes × 80, p50", "2 processes × 80, p95")),
    ("e2e, 8 × 20 (jobs/s)", "e2e", ("8 processes × 20",)),
    ("its p50 / p95 (ms)", "e2e", ("8 processes × 20, p50", "8 processes × 20, p95")),
    ("idle p50 / p99 (ms)", "idle", ("submit → start, p50", "submit → start, p99")),
)


def side_by_side(figures: Figures) -> str:
    """Return one row for each system, pulse first. Columns without a figure are left out."""
    rows = []
    for system in sorted(figures.systems, key=lambda name: name != OURS):
        rows.append([f"**{system}**" if system == OURS else system, *_cells(figures, system)])
        plain = _cells(figures, system, WITHOUT_PGO)
        if set(plain) != {_NOTHING}:
            rows.append([f"{system}, Python without PGO", *plain])
    used = [number for number in range(1, len(COLUMNS) + 1) if any(row[number] != _NOTHING for row in rows)]
    if not used:
        return "Nothing that could be compared was measured."
    headings = ["", *(COLUMNS[number - 1][0] for number in used)]
    return table(headings, [[row[0], *(row[number] for number in used)] for row in rows])


def _cells(figures: Figures, system: str, suffix: str = "") -> list[str]:
    cells = []
    for _, scenario, names in COLUMNS:
        found = [figures.find(system, scenario, f"{name}{suffix}") for name in names]
        cells.append(" / ".join(written(figure.median) for figure in found if figure) or _NOTHING)
    return cells


def one_by_one(figures: Sequence[Figure], *, with_system: bool = False) -> str:
    """Return one row for each figure: its median, its spread, its share of the raw limit, its note."""
    if not figures:
        return "None was measured in this run."
    has_shares = any(figure.share is not None for figure in figures)
    headings = ["system"] if with_system else []
    headings += ["scenario", "what", "median", "least … most", *(["of raw"] if has_shares else []), "note"]
    rows = []
    for figure in figures:
        least, most = figure.spread
        share = "" if figure.share is None else f"{figure.share:.2f} of {figure.of}"
        rows.append(
            [
                *([figure.system] if with_system else []),
                figure.scenario,
                figure.name,
                f"{written(figure.median)} {figure.unit}",
                f"{written(least)} … {written(most)}",
                *([share] if has_shares else []),
                figure.note,
            ]
        )
    return table(headings, rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
