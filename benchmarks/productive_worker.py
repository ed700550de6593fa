"""Worker processes whose handlers make something: `python -m benchmarks.productive_worker`.

PULSE_BENCH_WORK says what: "result", a result of 100 bytes, or "steps", ten steps in each job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pulse
from benchmarks.recorder import Recording
from benchmarks.worker import run

WORK = "PULSE_BENCH_WORK"
RESULT = "x" * 98  # 100 bytes as JSON
STEPS = 10


def returning(recording: Recording) -> Callable[..., Any]:
    async def record(args: dict[str, Any]) -> str:
        recording.hit(args["t"], time.time())
        return RESULT

    return record


def stepping(recording: Recording) -> Callable[..., Any]:
    async def record(args: dict[str, Any], ctx: pulse.Context) -> None:
        recording.hit(args["t"], time.time())
        for number in range(STEPS):
            await ctx.step("part", _make, number, index=number)

    return record


async def _make(number: int) -> str:
    return RESULT


if __name__ == "__main__":
    run({"result": returning, "steps": stepping}[os.environ[WORK]])
