"""Many workers in one process, one connection each: `python -m benchmarks.crowd_worker`.

They serve two topics: one whose handler records that it ran, and one whose handler never ends.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import pulse
from benchmarks.filling import TOPIC
from benchmarks.recorder import Recording
from benchmarks.worker import watch_connections

HELD_TOPIC = "bench-held"


async def main(address: str, workers: str, concurrency: str, path: str) -> None:
    recording = Recording(Path(path))
    numbers = itertools.count(1)

    def connected() -> None:
        if next(numbers) == int(workers):
            recording.connected()

    async def record(args: dict[str, Any]) -> None:
        recording.hit(args["t"], time.time())

    async def hold() -> None:
        await asyncio.Event().wait()

    watch_connections(connected)
    crowd = [pulse.Pulse(address, concurrency=int(concurrency)) for _ in range(int(workers))]
    for p in crowd:
        p.register(TOPIC, record)
        p.register(HELD_TOPIC, hold)
    await asyncio.gather(*(p.run(handle_signals=False) for p in crowd))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(*sys.argv[1:]))
