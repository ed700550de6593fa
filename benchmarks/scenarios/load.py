"""The jobs that scenarios submit, and how scenarios know that they are done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

import pulse
from benchmarks.filling import TOPIC

_UNFINISHED = """
SELECT EXISTS (SELECT FROM pulse.jobs WHERE queued AND topic = ANY($1))
"""


def payload(number: int) -> dict[str, Any]:
    """About fifty bytes of JSON that carry the moment of submission."""
    return {"i": number, "t": time.time(), "p": "x" * 16}


async def preload(address: str, payloads: Sequence[dict[str, Any]]) -> float:
    """Submit that many jobs in bulk and return how many seconds it took."""
    async with client(address) as p:
        started = time.perf_counter()
        await p.enqueue_many(TOPIC, payloads)
        return time.perf_counter() - started


@asynccontextmanager
async def client(address: str) -> AsyncIterator[pulse.Pulse]:
    """A connected client: its first call is made before the measurement."""
    async with pulse.Pulse(address) as p:
        await p.enqueue("bench-warm-up", {})
        yield p


async def produce(
    clients: Sequence[pulse.Pulse], producers: int, jobs: int, each: Callable[[int], dict[str, Any]] = payload
) -> float:
    """Submit jobs from producers that each await one enqueue at a time. Returns the seconds it took."""
    numbers = iter(range(jobs))

    async def submit(p: pulse.Pulse) -> None:
        for number in numbers:
            await p.enqueue(TOPIC, each(number))

    started = time.perf_counter()
    calls: list[Coroutine[Any, Any, None]] = [
        submit(clients[number % len(clients)]) for number in range(producers)
    ]
    await asyncio.gather(*calls)
    return time.perf_counter() - started


async def nothing_unfinished(
    connection: asyncpg.Connection[asyncpg.Record], topics: Sequence[str] = (TOPIC,)
) -> int:
    """Return once the database holds no unfinished job: committed, not merely handled.

    Returns the number of queries it made, since each is a transaction too.
    """
    asked = 1
    while await connection.fetchval(_UNFINISHED, list(topics)):
        asked += 1
        await asyncio.sleep(0.002)
    return asked
