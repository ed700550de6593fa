"""Samples over time: a table with a row for each moment, and a figure for each of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.figures import Figure, written
from benchmarks.tables import table

Moment = TypeVar("Moment")


@dataclass(frozen=True, slots=True)
class Column(Generic[Moment]):
    name: str
    unit: str
    read: Callable[[Moment], float | None]
    """None where there is no value."""


def as_table(columns: Sequence[Column[Moment]], moments: Mapping[str, Moment]) -> str:
    """Return one row for each moment, under the names of the columns with their units."""
    headings = ["", *(f"{column.name} ({column.unit})" if column.unit else column.name for column in columns)]
    rows = []
    for when, moment in moments.items():
        values = [column.read(moment) for column in columns]
        rows.append([when, *("" if value is None else written(value) for value in values)])
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    padded = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return table(headings, padded)


def as_figures(
    scenario: str, columns: Sequence[Column[Moment]], moments: Mapping[str, Moment]
) -> list[Figure]:
    """Return one figure for each column. Its repeats are the moments, in their order."""
    figures = []
    for column in columns:
        values = {
            when: value for when, moment in moments.items() if (value := column.read(moment)) is not None
        }
        if values:
            first, *_, last = [*values, *values]
            note = f"{first} … {last}"
            figures.append(Figure(scenario, column.name, column.unit, list(values.values()), note))
    return figures
