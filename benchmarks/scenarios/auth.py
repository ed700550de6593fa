"""What users cost: a drain with and without them, and the latency of jobs under a flood of bad logins.

Runs with and without alternate, so that a machine that changes its pace changes both.
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

import bcrypt

from benchmarks.figures import Figure, percentile
from benchmarks.scenarios.drain import drain_rate
from benchmarks.scenarios.idle import latencies
from benchmarks.stand import Stand

DRAINED = 20_000
SUBMITTED = 200
COST = 12
BAD_LOGINS_PER_SECOND = 1000
_USER, _PASSWORD = "bench", "the right one"


async def measure(stand: Stand) -> list[Figure]:
    hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(COST)).decode()
    users = {"PULSE_AUTH_USERS": f"{_USER}:{hashed}"}
    return [*await _drains(stand, users), *await _floods(stand, users)]


async def _drains(stand: Stand, users: dict[str, str]) -> list[Figure]:
    without, with_users = [], []
    for _ in range(stand.repeats):
        async with stand.database() as dsn, stand.pulsed(dsn) as address:
            without.append(await drain_rate(stand, dsn, address, DRAINED))
        async with stand.database() as dsn, stand.pulsed(dsn, **users) as address:
            with _credentials():
                with_users.append(await drain_rate(stand, dsn, address, DRAINED))
    ratio = statistics.median(with_users) / statistics.median(without)
    return [
        Figure("auth", f"drain of {DRAINED:,}, open", "jobs/s", without),
        Figure("auth", f"drain of {DRAINED:,}, bcrypt users", "jobs/s", with_users, f"{ratio:.3f} × open"),
    ]


async def _floods(stand: Stand, users: dict[str, str]) -> list[Figure]:
    # The flood and its refusals take much of a small machine. Aimed at another server they do as well: what
    # is worse than that is what sharing the server costs.
    quiet, beside, flooded, rates = [], [], [], []
    for _ in range(stand.repeats):
        async with (
            stand.database() as dsn,
            stand.database() as other_dsn,
            stand.pulsed(dsn, **users) as address,
            stand.pulsed(other_dsn, **users) as other_address,
        ):
            with _credentials():
                quiet.append(await latencies(stand, address, SUBMITTED))
                async with _flood(other_address):
                    beside.append(await latencies(stand, address, SUBMITTED))
                async with _flood(address) as told:
                    flooded.append(await latencies(stand, address, SUBMITTED))
                rates += told
    note = f"{statistics.median(rates):,.0f} bad logins/s"
    return [
        Figure("auth", f"{name}, p{share}", "ms", [percentile(run, share / 100) for run in runs], remark)
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
    told: list[float] = []
    try:
        yield told
    finally:
        process.terminate()
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)
    told.append(json.loads(output)["per_second"])


@contextmanager
def _credentials() -> Iterator[None]:
    """Clients that are made in the block, here and in worker processes, show the user's password."""
    os.environ.update(PULSE_USER=_USER, PULSE_PASSWORD=_PASSWORD)
    try:
        yield
    finally:
        del os.environ["PULSE_USER"], os.environ["PULSE_PASSWORD"]
