"""Small, middling and large payloads: submitted in bulk, then drained by one worker process."""

from __future__ import annotations

import base64
import os
import statistics
from functools import partial
from typing import Any, NamedTuple

from benchmarks.draining import drain
from benchmarks.figures import Figure
from benchmarks.filling import TOPIC
from benchmarks.repeating import in_turn
from benchmarks.scenarios.load import payload, preload
from benchmarks.stand import Stand

# How many of each: a hundred megabytes of the largest.
SIZES = {"100 B": (100, 20_000), "10 kB": (10_000, 5_000), "500 kB": (500_000, 200)}


class Both(NamedTuple):
    submitted: float
    drained: float


async def measure(stand: Stand) -> list[Figure]:
    runs = {name: partial(_run, stand, *size) for name, size in SIZES.items()}
    outcomes = await in_turn(stand, runs)
    figures = []
    for name, results in outcomes.items():
        for verb, rates in (
            ("submit", [result.submitted for result in results]),
            ("drain", [result.drained for result in results]),
        ):
            megabytes = statistics.median(rates) * SIZES[name][0] / 1e6
            figures.append(Figure("payload", f"{name}, {verb}", "jobs/s", rates, f"{megabytes:,.1f} MB/s"))
    return figures


async def _run(stand: Stand, size: int, count: int) -> Both:
    jobs = stand.sized(count)
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        payloads = [sized_payload(number, size) for number in range(jobs)]
        with stand.background.watched():
            seconds = await preload(server.address, payloads)
        await stand.settle(dsn)
        drained = await drain(stand, dsn, [server], [TOPIC], jobs)
        return Both(jobs / seconds, drained.rate)


def sized_payload(number: int, size: int) -> dict[str, Any]:
    """Return arguments of about `size` bytes as JSON that hardly compress."""
    text = base64.b64encode(os.urandom(size * 3 // 4)).decode()
    return {**payload(number), "p": text[: max(0, size - 45)]}
