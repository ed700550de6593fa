"""dramatiq's side of the benchmark; its own command line starts the workers from this module."""

from __future__ import annotations

import asyncio
from typing import Any

# Installed in the peer's environment only: mypy cannot see it.
import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]
from dramatiq.middleware import Middleware, default_middleware  # type: ignore[import-not-found]

from benchmarks.peers.programs import load
from benchmarks.peers.programs.recording import record, say_connected


class SayConnected(Middleware):  # type: ignore[misc]  # its base has no types here
    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        say_connected()


def _record(i: int, t: float, p: str) -> None:
    record(t)


middleware = [kind() for kind in default_middleware if kind.__name__ != "Prometheus"]
dramatiq.set_broker(RedisBroker(url=load.store_url(), middleware=[*middleware, SayConnected()]))
actor = dramatiq.actor(actor_name="record")(_record)


async def install() -> float:
    return 0


async def produce(count: int, producers: int, gap: float) -> float:
    return load.produce_in_threads(count, producers, gap, lambda payload: actor.send(**payload))


if __name__ == "__main__":
    load.obey(asyncio.run, install=install, produce=produce)
