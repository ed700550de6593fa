"""Bar charts as SVG, written by hand: readable on a light page and on a dark one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.figures import written

# The background is a part of the picture, so these hold whatever page it stands on. Text has a contrast of 7
# and more on it, bars of 3 and more.
_BACKGROUND = "#f6f7f9"
_BORDER = "#c9ced6"
_TEXT = "#1d2530"
_FAINT = "#4a5462"
_OURS = ("#c2410c", "#e8833a")
_THEIRS = ("#5b6b82", "#8291a8")
_LIMIT = ("#2f7d6d", "#5fa596")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"

_WIDTH = 760
_LABELS = 150
_VALUES = 110
_BAR = 20
_GAP = 10
_TOP = 62
_BOTTOM = 18


@dataclass(frozen=True, slots=True)
class Row:
    """One system: its name and a value for each series, None where it has none."""

    label: str
    values: Sequence[float | None]
    is_ours: bool = False
    is_limit: bool = False


def bar_chart(
    title: str, unit: str, rows: Sequence[Row], *, series: Sequence[str] = (), is_logarithmic: bool = False
) -> str:
    """Return a chart with a group of bars for each row, in their order, and each value beside its bar."""
    per_row = max(len(row.values) for row in rows)
    pitch = per_row * _BAR + _GAP
    height = _TOP + len(rows) * pitch + _BOTTOM
    known = [value for row in rows for value in row.values if value is not None]
    scale = _Scale(known, is_logarithmic)
    better = "shorter is better" if unit == "ms" else "longer is better"
    about = [unit, better, *(["logarithmic scale"] if is_logarithmic else [])]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" font-family="{_FONT}">',
        f"<title>{escape(title)}</title>",
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8" fill="{_BACKGROUND}" '
        f'stroke="{_BORDER}"/>',
        _text(20, 28, title, size=16, weight=600),
        _text(20, 48, "; ".join([*about, *_legend(series)]), size=12, color=_FAINT),
    ]
    for number, row in enumerate(rows):
        parts += _row(row, _TOP + number * pitch, per_row, scale)
    return "\n".join([*parts, "</svg>", ""])


def _legend(series: Sequence[str]) -> list[str]:
    return [f"upper bar {series[0]}, lower bar {series[1]}"] if len(series) == 2 else []


def _row(row: Row, top: int, per_row: int, scale: _Scale) -> list[str]:
    colors = _OURS if row.is_ours else _LIMIT if row.is_limit else _THEIRS
    weight = 700 if row.is_ours else 400
    middle = top + per_row * _BAR // 2
    parts = [_text(_LABELS - 10, middle + 4, row.label, weight=weight, anchor="end")]
    first = middle - len(row.values) * _BAR // 2
    for number, value in enumerate(row.values):
        y = first + number * _BAR
        if value is None:
            parts.append(_text(_LABELS + 6, y + 14, "–", color=_FAINT))
            continue
        length = scale.length(value)
        parts.append(
            f'<rect x="{_LABELS}" y="{y + 1}" width="{length:.1f}" height="{_BAR - 2}" rx="2" '
            f'fill="{colors[number % 2]}"/>'
        )
        parts.append(_text(_LABELS + length + 6, y + 14, written(value), weight=weight))
    return parts


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    weight: int = 400,
    anchor: str = "start",
    color: str = _TEXT,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{color}">{escape(words)}</text>'
    )


class _Scale:
    """From a value to the length of its bar."""

    def __init__(self, values: Sequence[float], is_logarithmic: bool) -> None:
        self._longest = _WIDTH - _LABELS - _VALUES
        self._most = max(values, default=1.0) or 1.0
        least = min((value for value in values if value > 0), default=1.0)
        # From half of the least, so that even the shortest bar can be seen.
        self._from = least / 2 if is_logarithmic else None

    def length(self, value: float) -> float:
        if self._from is None:
            return self._longest * value / self._most
        if value <= self._from:
            return 0.0
        return self._longest * math.log(value / self._from) / math.log(self._most / self._from)
