"""The delays between attempts, as they are typed and written: first=2s,factor=3,longest=6h,jitter=0.2."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, TypedDict

from pulse_text.times import format_exact, parse_duration

EXAMPLE = "first=2s,factor=3,longest=6h,jitter=0.2"
_SHOWN = 60  # characters of a wrong value, so that the sentence stays one line


class Delays(Protocol):
    """A pulse.Backoff."""

    @property
    def first(self) -> timedelta: ...
    @property
    def factor(self) -> float: ...
    @property
    def longest(self) -> timedelta: ...
    @property
    def jitter(self) -> float: ...


class Parts(TypedDict, total=False):
    """The arguments of a pulse.Backoff."""

    first: timedelta
    factor: float
    longest: timedelta
    jitter: float


def parse_backoff(text: str) -> Parts:
    """Read the parts that are given. Raises ValueError with a sentence."""
    parts: Parts = {}
    for part in text.split(","):
        name, equals, value = (piece.strip().lower() for piece in part.partition("="))
        if not equals or name not in Parts.__annotations__ or name in parts:
            raise ValueError(f"{text[:_SHOWN]!r} is not a backoff: write for example {EXAMPLE}.")
        match name:
            case "first":
                parts["first"] = parse_duration(value)
            case "longest":
                parts["longest"] = parse_duration(value)
            case "factor":
                parts["factor"] = _number(name, value)
            case "jitter":
                parts["jitter"] = _number(name, value)
    if "first" not in parts:
        raise ValueError(f"{text[:_SHOWN]!r} has no first delay: write for example {EXAMPLE}.")
    # The default of `longest` is an hour. It must not be shorter than the first delay.
    if "longest" not in parts and parts["first"] > timedelta(hours=1):
        parts["longest"] = parts["first"]
    return parts


def format_backoff(delays: Delays) -> str:
    """Write the delays as `parse_backoff` reads them back."""
    return (
        f"first={format_exact(delays.first)},factor={delays.factor:g},"
        f"longest={format_exact(delays.longest)},jitter={delays.jitter:g}"
    )


def describe_backoff(delays: Delays) -> str:
    """Write the delays in words: 2s, then ×3, up to 6h, ±20%."""
    steady = delays.factor == 1 or delays.first == delays.longest
    grows = "" if steady else f", then ×{delays.factor:g}, up to {format_exact(delays.longest)}"
    spread = f", ±{delays.jitter * 100:g}%" if delays.jitter else ""
    return f"{'always ' if steady else ''}{format_exact(delays.first)}{grows}{spread}"


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{name}={value[:_SHOWN]!r} is not a number: write for example {EXAMPLE}.") from None
