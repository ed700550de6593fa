"""A figure is a median of repeats with its spread, never a single run."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg


@dataclass(frozen=True, slots=True)
class Figure:
    scenario: str
    name: str
    unit: str
    repeats: Sequence[float]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.repeats)

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "repeats": list(self.repeats),
            "note": self.note,
        }


def tell(figure: Figure) -> None:
    digits = 0 if figure.median >= 100 else 2
    spread = f"[{min(figure.repeats):,.{digits}f} … {max(figure.repeats):,.{digits}f}]"
    note = f"  ({figure.note})" if figure.note else ""
    label = f"{figure.scenario}: {figure.name}"
    print(f"{label:<46} {figure.median:>10,.{digits}f} {figure.unit:<7} {spread}{note}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


async def environment(dsn: str) -> str:
    """One line about the machine and the versions: figures mean nothing without it."""
    connection = await asyncpg.connect(dsn)
    try:
        version = await connection.fetchval("SHOW server_version")
        fsync = await connection.fetchval("SHOW fsync")
        commit = await connection.fetchval("SHOW synchronous_commit")
    finally:
        await connection.close()
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"PostgreSQL {version} (fsync {fsync}, synchronous_commit {commit})"
    )
