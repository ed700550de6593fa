"""What the scenarios submit, and how they know that it is done."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

import pulse
from benchmarks.worker import TOPIC

_UNFINISHED = """
SELECT EXISTS (SELECT FROM pulse.jobs WHERE ready AND topic = $1)
    OR EXISTS (SELECT FROM pulse.jobs WHERE status = 'RUNNING')
"""


def payload(number: int) -> dict[str, Any]:
    """About fifty bytes of JSON that carry the moment of submission."""
    return {"i": number, "t": time.time(), "p": "x" * 16}


async def preload(address: str, count: int) -> float:
    """Submit that many jobs in bulk and return how many seconds it took."""
    async with pulse.Pulse(address) as p:
        await p.enqueue("bench-warm-up", {})
        started = time.perf_counter()
        await p.enqueue_many(TOPIC, [payload(number) for number in range(count)])
        return time.perf_counter() - started


async def wait_until_finished(dsn: str) -> None:
    """Return once the database holds no unfinished job: committed, not merely handled."""
    connection = await asyncpg.connect(dsn)
    try:
        while await connection.fetchval(_UNFINISHED, TOPIC):
            await asyncio.sleep(0.005)
    finally:
        await connection.close()
