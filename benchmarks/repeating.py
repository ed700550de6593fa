"""Repeats runs in turn, and once more if other processes used the machine during a run."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

from benchmarks.meters import machine_cpu_seconds
from benchmarks.stand import Stand

# Judged by the noise alone, never by the result: else one would pick the runs that one likes.
BACKGROUND_ALLOWED_CORES = 0.25
EXTRA_RUNS = 3
_QUIET_LOOK_SECONDS = 0.5
_QUIET_PATIENCE_SECONDS = 10

Result = TypeVar("Result")
Runs: TypeAlias = Mapping[str, Callable[[], Awaitable[Result]]]


async def in_turn(stand: Stand, runs: Runs[Result]) -> dict[str, list[Result]]:
    """Return the results of every run, repeated as often as the stand is set to.

    The runs alternate, so that a machine that changes its pace changes all runs. A run during which
    other processes used too much CPU is repeated, up to three times per name; the least disturbed
    run counts.
    """
    results: dict[str, list[Result]] = {name: [] for name in runs}
    extra = dict.fromkeys(runs, 0 if stand.is_trial else EXTRA_RUNS)
    for _ in range(stand.repeats):
        for name, run in runs.items():
            cores, result = await _watched(stand, run)
            while cores > BACKGROUND_ALLOWED_CORES and extra[name]:
                extra[name] -= 1
                print(f"{name}: others used {cores:.2f} cores at the best; once more", file=sys.stderr)
                cores_again, result_again = await _watched(stand, run)
                if cores_again < cores:
                    cores, result = cores_again, result_again
            stand.disturbed_runs += cores > BACKGROUND_ALLOWED_CORES
            results[name].append(result)
    return results


async def repeated(stand: Stand, name: str, run: Callable[[], Awaitable[Result]]) -> list[Result]:
    """Return the results of one run, repeated in the same way."""
    return (await in_turn(stand, {name: run}))[name]


async def _watched(stand: Stand, run: Callable[[], Awaitable[Result]]) -> tuple[float, Result]:
    if stand.background.is_measurable and not stand.is_trial:
        await _quiet()
    stand.background.forget()
    result = await run()
    return stand.background.cores, result


async def _quiet() -> None:
    """Return once the machine has nothing to do, or after a while in any case."""
    deadline = time.monotonic() + _QUIET_PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = machine_cpu_seconds()
        await asyncio.sleep(_QUIET_LOOK_SECONDS)
        if machine_cpu_seconds() - before < BACKGROUND_ALLOWED_CORES * _QUIET_LOOK_SECONDS:
            return
