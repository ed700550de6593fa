"""pgqueuer's side of the benchmark."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop

# Installed in the peer's environment only: mypy cannot see them.
from pgqueuer import PgQueuer  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgPoolDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, until_let_loose


@asynccontextmanager
async def _driver(connections: int) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(load.store_url(), min_size=connections, max_size=connections) as pool:
        yield AsyncpgPoolDriver(pool)


def _encoded(payload: load.Payload) -> bytes:
    return json.dumps(payload).encode()


async def install() -> float:
    async with _driver(1) as driver:
        await Queries(driver).install()
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    async with _driver(producers) as driver:
        queries = Queries(driver)
        return await load.produce(
            count, producers, gap, lambda payload: queries.enqueue("record", _encoded(payload), 0)
        )


async def bulk(count: int, size: int) -> float:
    async with _driver(1) as driver:
        queries = Queries(driver)

        async def submit(batch: list[load.Payload]) -> None:
            payloads = [_encoded(payload) for payload in batch]
            await queries.enqueue(["record"] * len(batch), payloads, [0] * len(batch))

        return await load.bulk(count, size, submit)


async def work(batch: int, connections: int, limit: int = 0) -> float:
    async with _driver(connections) as driver:
        queue = PgQueuer(driver)

        async def handle(job: Any) -> None:
            record(json.loads(job.payload)["t"])

        queue.entrypoint("record", concurrency_limit=limit)(handle)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
        await until_let_loose()
        await queue.run(batch_size=batch)
    return 0


if __name__ == "__main__":
    load.obey(uvloop.run, install=install, produce=produce, bulk=bulk, work=work)
