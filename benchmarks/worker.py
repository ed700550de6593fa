"""A worker process whose handler does nothing but record that it ran: `python -m benchmarks.worker`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pulse
from benchmarks.recorder import Recording

TOPIC = "bench"


async def main(address: str, concurrency: str, path: str) -> None:
    recording = Recording(Path(path))
    p = pulse.Pulse(address, concurrency=int(concurrency))

    @p.job("bench-hello")
    async def hello() -> None:
        recording.connected()

    @p.job(TOPIC)
    async def record(args: dict[str, Any]) -> None:
        recording.hit(args["t"], time.time())

    await p.enqueue("bench-hello", priority=1000)
    await p.run()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(*sys.argv[1:]))
    else:
        uvloop.run(main(*sys.argv[1:]))
