"""Oban's side of the benchmark."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvloop

# Installed in the peer's environment only: mypy cannot see them.
from oban import Oban, worker  # type: ignore[import-not-found]
from oban.schema import install as install_schema  # type: ignore[import-not-found]
from psycopg_pool import AsyncConnectionPool  # type: ignore[import-not-found]

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, until_let_loose


class Record:
    async def process(self, job: Any) -> None:
        record(job.args["t"])


RecordWorker = worker(queue="default")(Record)


@asynccontextmanager
async def _pool(size: int) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(load.store_url(), min_size=size, max_size=size, open=False) as pool:
        await pool.wait()
        yield pool


async def install() -> float:
    async with _pool(1) as pool:
        await install_schema(pool)
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    async with _pool(producers) as pool, Oban(pool=pool) as oban:
        return await load.produce(
            count, producers, gap, lambda payload: oban.enqueue(RecordWorker.new(payload))
        )


async def bulk(count: int, size: int) -> float:
    async with _pool(1) as pool, Oban(pool=pool) as oban:
        return await load.bulk(
            count, size, lambda batch: oban.enqueue_many([RecordWorker.new(payload) for payload in batch])
        )


async def work(slots: int, connections: int) -> float:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with _pool(connections) as pool:
        await until_let_loose()
        async with Oban(pool=pool, queues={"default": slots}):
            await stopping.wait()
    return 0


if __name__ == "__main__":
    load.obey(uvloop.run, install=install, produce=produce, bulk=bulk, work=work)
