"""celery's side of the benchmark; its own command line starts the workers from `app`."""

from __future__ import annotations

import asyncio

# Installed in the peer's environment only: mypy cannot see it.
from celery import Celery, signals  # type: ignore[import-not-found]

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, say_connected

app = Celery("bench", broker=load.store_url())
app.conf.update(task_ignore_result=True, broker_pool_limit=16, broker_connection_retry_on_startup=True)


def _record(i: int, t: float, p: str) -> None:
    record(t)


def _say_connected(**_: object) -> None:
    say_connected()


# A module is run under two names, by its path and as the main one: the task has the same in both.
task = app.task(name="record")(_record)
# Celery forgets a receiver that nothing else refers to.
signals.worker_ready.connect(_say_connected, weak=False)


async def install() -> float:
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    return load.produce_in_threads(count, producers, gap, lambda payload: task.apply_async(kwargs=payload))


if __name__ == "__main__":
    load.obey(asyncio.run, install=install, produce=produce)
