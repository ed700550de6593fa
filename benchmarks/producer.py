"""A process that submits: `python -m benchmarks.producer ADDRESS CALLERS SECONDS`.

Each caller awaits one enqueue at a time. It prints a line once it is connected, begins with a line of its
input, and ends with one line of JSON: the number of jobs, and the milliseconds of a call.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.filling import TOPIC
from benchmarks.scenarios.load import client, payload


async def main(address: str, callers: str, seconds: str) -> None:
    took: list[float] = []
    async with client(address) as p:
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        end = time.perf_counter() + float(seconds)

        async def call() -> None:
            while (began := time.perf_counter()) < end:
                await p.enqueue(TOPIC, payload(len(took)))
                took.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(call() for _ in range(int(callers))))
    took.sort()
    print(json.dumps({"jobs": len(took), "p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}))


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(*sys.argv[1:]))
    else:
        uvloop.run(main(*sys.argv[1:]))
