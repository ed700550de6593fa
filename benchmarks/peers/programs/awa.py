"""Awa's side of the benchmark."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import Any

# Installed in the peer's environment only: mypy cannot see it.
import awa  # type: ignore[import-not-found]
import uvloop

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, until_let_loose

QUEUE = "record"


@dataclass
class Record:
    i: int
    t: float
    p: str = ""


def _url() -> str:
    """Return the address of the store with a host: sqlx ignores a socket in an address without one."""
    return load.store_url().replace("@/", "@localhost/").replace("///", "//localhost/")


def _job(payload: load.Payload) -> Record:
    return Record(**payload)


async def install() -> float:
    client = awa.AsyncClient(_url())
    await client.migrate()

    async def handle(job: Any) -> None:
        pass

    # A fresh database changes to queue storage when the first worker starts.
    client.task(Record, queue=QUEUE)(handle)
    await client.start([(QUEUE, 1)])
    await asyncio.sleep(2)
    await client.shutdown()
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    client = awa.AsyncClient(_url(), max_connections=producers + 2)

    async def submit(payload: load.Payload) -> None:
        await client.insert(_job(payload), queue=QUEUE)

    return await load.produce(count, producers, gap, submit)


async def bulk(count: int, size: int) -> float:
    client = awa.AsyncClient(_url())

    async def submit(batch: list[load.Payload]) -> None:
        await client.enqueue_many_copy([_job(payload) for payload in batch], queue=QUEUE)

    return await load.bulk(count, size, submit)


async def work(slots: int, connections: int) -> float:
    client = awa.AsyncClient(_url(), max_connections=connections)

    async def handle(job: Any) -> None:
        record(job.args.t)

    client.task(Record, queue=QUEUE)(handle)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await until_let_loose()
    await client.start([(QUEUE, slots)], poll_interval_ms=50)
    await stop.wait()
    await client.shutdown()
    return 0


if __name__ == "__main__":
    load.obey(uvloop.run, install=install, produce=produce, bulk=bulk, work=work)
