"""taskiq's side of the benchmark; its own command line starts the workers from `broker`."""

from __future__ import annotations

from typing import Any

import uvloop

# Installed in the peer's environment only: mypy cannot see them.
from taskiq import TaskiqEvents  # type: ignore[import-not-found]
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, say_connected


async def _record(i: int, t: float, p: str) -> None:
    record(t)


async def _say_connected(_: Any) -> None:
    say_connected()


broker = RedisStreamBroker(load.store_url(), xread_count=100)
broker.add_event_handler(TaskiqEvents.WORKER_STARTUP, _say_connected)
task = broker.register_task(_record, task_name="record")


async def install() -> float:
    # Makes the stream and its group. Without the group, submitted jobs would be skipped.
    await broker.startup()
    await broker.shutdown()
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    await broker.startup()
    try:
        return await load.produce(count, producers, gap, lambda payload: task.kiq(**payload))
    finally:
        await broker.shutdown()


if __name__ == "__main__":
    load.obey(uvloop.run, install=install, produce=produce)
