"""The latency of jobs under a flood of bad logins.

The flood and its refusals take much of a small machine, even when they are aimed at another server.
The difference between the two is the cost of sharing the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from benchmarks.figures import Figure, percentile
from benchmarks.scenarios.auth import credentials, users
from benchmarks.scenarios.idle import latencies
from benchmarks.stand import Stand

SUBMITTED = 200
BAD_LOGINS_PER_SECOND = 1000


async def measure(stand: Stand) -> list[Figure]:
    quiet, beside, flooded, rates = [], [], [], []
    settings, jobs = users(), stand.sized(SUBMITTED)
    for _ in range(stand.repeats):
        async with (
            stand.database() as dsn,
            stand.database() as other_dsn,
            stand.pulsed(dsn, settings) as server,
            stand.pulsed(other_dsn, settings) as other,
        ):
            with _credentials():
                quiet.append(await latencies(stand, server.address, jobs))
                async with _flood(other.address):
                    beside.append(await latencies(stand, server.address, jobs))
                async with _flood(server.address) as measured:
                    flooded.append(await latencies(stand, server.address, jobs))
                rates += measured
    note = f"{statistics.median(rates):,.0f} bad logins/s"
    return [
        Figure("logins", f"{name}, p{share}", "ms", [percentile(run, share / 100) for run in runs], remark)
        for share in (50, 95)
        for name, runs, remark in (
            ("submit → start", quiet, ""),
            ("the same, another server flooded", beside, ""),
            ("the same, flooded", flooded, note),
        )
    ]


@asynccontextmanager
async def _flood(address: str) -> AsyncIterator[list[float]]:
    """Bad logins for the length of the block. The list has their rate once it is over."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.flood", address, str(BAD_LOGINS_PER_SECOND)],
        stdout=subprocess.PIPE,
    )
    measured: list[float] = []
    try:
        yield measured
    finally:
        process.terminate()
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)
    measured.append(json.loads(output)["per_second"])


@contextmanager
def _credentials() -> Iterator[None]:
    """Clients that are made in the block, here and in worker processes, show the user's password."""
    os.environ.update(credentials())
    try:
        yield
    finally:
        for name in credentials():
            del os.environ[name]
