"""A worker process whose handler does nothing but record that it ran: `python -m benchmarks.worker`.

It prints a line when it is prepared, and claims jobs once it reads one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulse
from benchmarks.filling import TOPIC
from benchmarks.recorder import Recording

__all__ = ["TOPIC"]


class ConnectionLog(logging.Handler):
    """Calls back when the SDK logs that a worker has its stream."""

    def __init__(self, connected: Callable[[], None]) -> None:
        super().__init__(logging.INFO)
        self._connected = connected

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Connected to pulsed"):
            self._connected()


def watch_connections(connected: Callable[[], None]) -> None:
    """Have the callback called for each worker of this process that has its stream."""
    logger = logging.getLogger("pulse.worker")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(ConnectionLog(connected))


def recording_only(recording: Recording) -> Callable[..., Any]:
    async def record(args: dict[str, Any]) -> None:
        recording.hit(args["t"], time.time())

    return record


async def main(
    make_handler: Callable[[Recording], Callable[..., Any]],
    address: str,
    concurrency: str,
    path: str,
    *topics: str,
) -> None:
    recording = Recording(Path(path))
    p = pulse.Pulse(address, concurrency=int(concurrency))
    handler = make_handler(recording)
    for topic in topics or (TOPIC,):
        p.register(topic, handler)
    watch_connections(recording.connected)
    # A full collection takes 20 ms, the time of 600 jobs. Whether one fell into a drain depended on how many
    # modules were imported before.
    gc.collect()
    print("prepared", flush=True)
    if await asyncio.to_thread(sys.stdin.readline):
        await p.run()


def run(make_handler: Callable[[Recording], Callable[..., Any]]) -> None:
    """Run a worker with this handler and the arguments of the process, on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(make_handler, *sys.argv[1:]))
    else:
        uvloop.run(main(make_handler, *sys.argv[1:]))


if __name__ == "__main__":
    run(recording_only)
