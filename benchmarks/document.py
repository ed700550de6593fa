"""A whole run as data: its figures, and the machine and versions they depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Document:
    machine: dict[str, Any]
    figures: Sequence[Figure]
    repeats: int
    disturbed_runs: int = 0
    """How many of the runs that count were disturbed by other processes."""
    is_trial: bool = False
    verdicts: Sequence[Verdict] = ()
    """The verdicts of scenarios that judge."""

    def write(self, path: Path) -> None:
        fields = {
            "machine": self.machine,
            "repeats": self.repeats,
            "disturbed_runs": self.disturbed_runs,
            "is_trial": self.is_trial,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "figures": [figure.as_dict() for figure in self.figures],
        }
        path.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Document:
        fields = json.loads(path.read_text(encoding="utf-8"))
        figures = [Figure.from_dict(figure) for figure in fields.pop("figures")]
        verdicts = tuple(Verdict(**verdict) for verdict in fields.pop("verdicts", ()))
        return cls(figures=figures, verdicts=verdicts, **fields)
