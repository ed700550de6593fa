"""A worker process some of whose jobs fail: `python -m benchmarks.flawed_worker`.

What becomes of a job stands in its payload. Its first start is recorded, and no other.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pulse
from benchmarks.filling import TOPIC
from benchmarks.recorder import Recording
from benchmarks.scenarios.load import payload
from benchmarks.worker import watch_connections

PROGRAM = "benchmarks.flawed_worker"
FAILS_ONCE, DISCARDED = "fails once", "discarded"


def flawed_payload(number: int) -> dict[str, Any]:
    """What `load.payload` makes, and of twenty jobs one fails once, of a hundred one is discarded."""
    end = DISCARDED if number % 100 == 50 else FAILS_ONCE if number % 20 == 7 else ""
    return {**payload(number), "end": end}


async def main(address: str, concurrency: str, path: str) -> None:
    recording = Recording(Path(path))
    p = pulse.Pulse(address, concurrency=int(concurrency))

    async def run(args: dict[str, Any], ctx: pulse.Context) -> None:
        is_first = ctx.attempt == 1
        if is_first:
            recording.hit(args["t"], time.time())
        if args["end"] == DISCARDED:
            raise pulse.Discard("not wanted")
        if args["end"] == FAILS_ONCE and is_first:
            raise RuntimeError("it does not work at first")

    p.register(TOPIC, run)
    watch_connections(recording.connected)
    print("prepared", flush=True)
    if await asyncio.to_thread(sys.stdin.readline):
        await p.run()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(*sys.argv[1:]))
