"""A process that tries wrong passwords at a given rate: `python -m benchmarks.flood ADDRESS RATE`.

Ends on SIGTERM, and prints how many it made per second and their outcomes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import time
from collections import Counter

import grpc

_METHOD = "/pulse.v1.PulseService/GetDispatchStatus"
# Each tick starts its share; finer than this a Python process cannot keep time.
_TICK_SECONDS = 0.01


async def main(address: str, rate: int) -> None:
    # The flood is meant to cost the server something, not to take the machine away from it.
    os.nice(15)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    ends: Counter[str] = Counter()
    calls: set[asyncio.Task[None]] = set()
    began, started, passed_over = time.monotonic(), 0, 0
    share = max(1, round(3 * rate * _TICK_SECONDS))
    async with grpc.aio.insecure_channel(address) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)

        async def try_password(number: int) -> None:
            # Half of them guess the password of an existing user.
            user = "bench" if number % 2 else f"user-{number}"
            token = base64.b64encode(f"{user}:wrong-{number}".encode()).decode()
            try:
                await method(b"", metadata=(("authorization", f"Basic {token}"),), timeout=30)
            except grpc.aio.AioRpcError as error:
                ends[error.code().name] += 1
            else:
                ends["OK"] += 1

        while not stopping.is_set():
            await asyncio.sleep(_TICK_SECONDS)
            due = int((time.monotonic() - began) * rate) - passed_over
            # Skip calls that a delayed process missed: sending them all at once would be a wave.
            passed_over += max(0, due - started - share)
            due = min(due, started + share)
            for number in range(started, due):
                task = asyncio.create_task(try_password(number))
                calls.add(task)
                task.add_done_callback(calls.discard)
            started = due
        seconds = time.monotonic() - began
        answered = sum(ends.values())
        for task in calls:
            task.cancel()
    print(json.dumps({"per_second": answered / seconds, "ends": ends}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
