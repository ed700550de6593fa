"""Runs the scenarios that are named, or all of them, and tells each figure as a median with its spread."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, environment, tell
from benchmarks.scenarios import auth, bulk, claim, dashboard, drain, fires, idle, metrics, submit
from benchmarks.stand import Stand

SCENARIOS: dict[str, Callable[[Stand], Coroutine[Any, Any, list[Figure]]]] = {
    "submit": submit.measure,
    "bulk": bulk.measure,
    "drain": drain.measure,
    "idle": idle.measure,
    "claim": claim.measure,
    "fires": fires.measure,
    "auth": auth.measure,
    "metrics": metrics.measure,
    "dashboard": dashboard.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", metavar="SCENARIO", help=f"any of {', '.join(SCENARIOS)}")
    parser.add_argument("--repeats", type=int, default=3, help="runs per figure (3)")
    parser.add_argument("--db", metavar="URL", help="a Postgres to use instead of the embedded one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    unknown = sorted(set(options.scenario) - SCENARIOS.keys())
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; known are {', '.join(SCENARIOS)}")
    figures: list[Figure] = []
    with Stand(options.db, options.repeats) as stand:
        about = asyncio.run(environment(stand.server_dsn))
        print(about, file=sys.stderr)
        for name in options.scenario or SCENARIOS:
            for figure in asyncio.run(SCENARIOS[name](stand)):
                figures.append(figure)
                tell(figure)
    if options.json:
        document = {"environment": about, "figures": [figure.as_dict() for figure in figures]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
