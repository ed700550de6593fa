"""Bars of several parts: how many of how many, by outcome or state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    style: str
    left: float
    width: float


def bar(counts: Mapping[str, int], total: int, *, width: float, least: float) -> tuple[Part, ...]:
    """Return the parts by style, from the left. `least` is the width of a small count: it stays visible."""
    widths = {style: max(least, width * number / total) for style, number in counts.items() if number}
    scale = min(1.0, width / sum(widths.values())) if widths else 1.0
    parts, left = [], 0.0
    for style, its_width in widths.items():
        parts.append(Part(style, round(left, 2), round(its_width * scale, 2)))
        left += its_width * scale
    return tuple(parts)
