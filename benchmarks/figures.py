"""A figure is a median of repeats with its spread, never a single run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Ends the name of a figure of pulse on a Python without PGO, in a run that is on one with it.
WITHOUT_PGO = ", without PGO"

# Where less is better, the share of a limit is inverted, so that 1 is the limit everywhere.
LESS_IS_BETTER = frozenset({"ms", "µs", "µs/job", "per job", "MB"})


@dataclass(frozen=True, slots=True)
class Figure:
    """The result of one system in one scenario. Systems are compared by scenario and name."""

    scenario: str
    name: str
    unit: str
    repeats: Sequence[float]
    note: str = ""
    system: str = "pulse"
    share: float | None = None
    """Of the limit that was measured in the same run; 1 is the limit itself. None: there is none."""
    of: str = ""
    """The name of that limit."""

    @property
    def median(self) -> float:
        return statistics.median(self.repeats)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most of the repeats."""
        return min(self.repeats), max(self.repeats)

    def beside(self, limit: Figure) -> Figure:
        """Return the figure with its share of a limit."""
        mine, its = self.median, limit.median
        if self.unit in LESS_IS_BETTER:
            mine, its = its, mine
        return replace(self, share=mine / its if its else None, of=limit.name)

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "repeats": list(self.repeats),
            "note": self.note,
            "system": self.system,
            "share": self.share,
            "of": self.of,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Figure:
        """Return the figure that `as_dict` was called on. The median is worked out again."""
        return cls(**{name: value for name, value in fields.items() if name != "median"})


def beside_best(figure: Figure, limits: Sequence[Figure]) -> Figure:
    """Return the figure with its share of the best limit; as it is if none was measured."""
    return figure.beside(best(limits)) if limits else figure


def best(figures: Sequence[Figure]) -> Figure:
    """Return the one with the largest median."""
    return max(figures, key=lambda figure: figure.median)


def written(value: float) -> str:
    """A number with three significant digits, as a person would write it."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 0.1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def print_figure(figure: Figure) -> None:
    """Print the figure as a line."""
    least, most = figure.spread
    remarks = [f"{figure.share:.2f} of raw {figure.of}"] if figure.share is not None else []
    remarks += [figure.note] if figure.note else []
    remark = f"  ({'; '.join(remarks)})" if remarks else ""
    system = "" if figure.system == "pulse" else f" [{figure.system}]"
    label = f"{figure.scenario}: {figure.name}{system}"
    spread = f"[{written(least)} … {written(most)}]"
    print(f"{label:<64} {written(figure.median):>9} {figure.unit:<8} {spread}{remark}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def percentiles(
    scenario: str, name: str, runs: Sequence[Sequence[float]], note: str = "", system: str = "pulse"
) -> list[Figure]:
    """Return p50, p95 and p99 of milliseconds, each with one value per run."""
    return [
        Figure(
            scenario,
            f"{name}, p{share}",
            "ms",
            [percentile(run, share / 100) for run in runs],
            note,
            system,
        )
        for share in (50, 95, 99)
    ]
