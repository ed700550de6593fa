"""procrastinate's side of the benchmark."""

from __future__ import annotations

from typing import Any

# Installed in the peer's environment only: mypy cannot see it.
import procrastinate  # type: ignore[import-not-found]
import uvloop

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, until_let_loose


async def _record(i: int, t: float, p: str) -> None:
    record(t)


def _app(connections: int) -> tuple[Any, Any]:
    """Return the application with that many connections, and its task."""
    connector = procrastinate.PsycopgConnector(
        conninfo=load.store_url(), min_size=connections, max_size=connections
    )
    app = procrastinate.App(connector=connector)
    return app, app.task(name="record", queue="default")(_record)


async def install() -> float:
    app, _ = _app(1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    app, task = _app(producers)
    async with app.open_async():
        return await load.produce(count, producers, gap, lambda payload: task.defer_async(**payload))


async def bulk(count: int, size: int) -> float:
    app, task = _app(1)
    async with app.open_async():
        return await load.bulk(count, size, lambda batch: task.batch_defer_async(*batch))


async def work(slots: int, connections: int) -> float:
    app, _ = _app(connections)
    async with app.open_async():
        await until_let_loose()
        await app.run_worker_async(queues=["default"], concurrency=slots)
    return 0


if __name__ == "__main__":
    load.obey(uvloop.run, install=install, produce=produce, bulk=bulk, work=work)
