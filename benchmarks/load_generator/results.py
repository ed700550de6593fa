"""The figures of a run, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load_generator.generating import Measured
from benchmarks.load_generator.options import Load

_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds; empty if nothing was measured."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    found = {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in _SHARES.items()
    }
    return {name: round(value * 1000, 2) for name, value in (found | {"max": ordered[-1]}).items()}


def figures(load: Load, measured: Measured) -> dict[str, Any]:
    return {
        "topic": load.topic,
        "rate_asked": load.rate,
        "rate_reached": round(len(measured.submits) / measured.seconds, 1) if measured.seconds else 0,
        "due": measured.due,
        "submitted": len(measured.submits),
        "refused": sum(measured.refused.values()),
        "started": len(measured.starts),
        "submit_ms": percentiles(measured.submits),
        "submit_to_start_ms": percentiles(measured.starts),
    }


def lines(load: Load, measured: Measured) -> Iterator[str]:
    found = figures(load, measured)
    rate = f"{found['rate_reached']:,} a second of {load.rate:,g}"
    yield f"submitted   {found['submitted']:,} of {found['due']:,}, {rate}"
    for sentence, count in sorted(measured.refused.items(), key=lambda item: -item[1])[:5]:
        yield f"refused     {count:,}: {sentence}"
    yield f"submit      {_row(found['submit_ms'])}"
    if load.has_worker:
        yield f"started     {found['started']:,}"
        yield f"to start    {_row(found['submit_to_start_ms'])}"


def write(path: Path, load: Load, measured: Measured) -> None:
    path.write_text(json.dumps(figures(load, measured), indent=2) + "\n", encoding="utf-8")


def _row(milliseconds: dict[str, float]) -> str:
    return (
        "   ".join(f"{name} {value:,.2f} ms" for name, value in milliseconds.items())
        or "nothing was measured"
    )
