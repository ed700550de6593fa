"""Two commits side by side: the figures of each, their ratio, and whether the spreads allow a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.figures import LESS_IS_BETTER, written
from benchmarks.tables import OURS, table

Direction = Literal["more", "less", ""]
WITHIN = "within the spread"
_ONE_VALUE = "one value has no spread"
_NOTHING = "–"


def direction(unit: str) -> Direction:
    """Return which way is better. Nothing for a share of another figure, which may mean either."""
    if unit.endswith("/s"):
        return "more"
    return "less" if unit in LESS_IS_BETTER else ""


@dataclass(slots=True)
class Pair:
    """A figure as the base has it and as the other side has it: a value for each run."""

    system: str
    scenario: str
    name: str
    unit: str
    base: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """The median of the other side, as a multiple of that of the base."""
        if not self.base or not self.other:
            return None
        base = statistics.median(self.base)
        return statistics.median(self.other) / base if base else None

    @property
    def verdict(self) -> str:
        """Whether the other side is better or worse. Nothing if one side lacks the figure."""
        if not self.base or not self.other:
            return ""
        if min(self.base) <= max(self.other) and min(self.other) <= max(self.base):
            return WITHIN
        if min(len(self.base), len(self.other)) == 1:
            return _ONE_VALUE
        if not (better := direction(self.unit)):
            return "differs"
        return "better" if (min(self.other) > max(self.base)) == (better == "more") else "worse"

    def as_dict(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "scenario": self.scenario,
            "name": self.name,
            "unit": self.unit,
            "better": direction(self.unit),
            "base": _side(self.base),
            "other": _side(self.other),
            "ratio": self.ratio,
            "verdict": self.verdict,
        }


def paired(base: Iterable[Mapping[str, Any]], other: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """Pair the figures of all turns, which `Figure.as_dict` wrote, in the order of their first appearance."""
    pairs: dict[tuple[str, ...], Pair] = {}
    for figures, is_base in ((base, True), (other, False)):
        for figure in figures:
            key = (figure["system"], figure["scenario"], figure["name"], figure["unit"])
            pair = pairs.setdefault(key, Pair(*key))
            (pair.base if is_base else pair.other).extend(figure["repeats"])
    return list(pairs.values())


def as_table(pairs: Sequence[Pair], base: str, other: str) -> str:
    """Return a row for each figure: medians with least and most, the ratio of the medians, the verdict."""
    headings = ["scenario", "what", "unit", "better", base, other, "ratio", "verdict"]
    rows = [
        [
            pair.scenario,
            pair.name if pair.system == OURS else f"{pair.name} [{pair.system}]",
            pair.unit,
            direction(pair.unit) or _NOTHING,
            _cell(pair.base),
            _cell(pair.other),
            _NOTHING if pair.ratio is None else f"{pair.ratio:.3f}",
            pair.verdict or f"only {base if pair.base else other} has it",
        ]
        for pair in pairs
    ]
    return table(headings, rows)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return _NOTHING
    return f"{written(statistics.median(values))} ({written(min(values))} … {written(max(values))})"


def _side(values: Sequence[float]) -> dict[str, Any] | None:
    return {"median": statistics.median(values), "repeats": list(values)} if values else None
