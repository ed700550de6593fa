"""Processes of a run: how they are waited for, and how they end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.counters import read_metrics, statements_in

_READY_SECONDS = 60
_END_SECONDS = 15

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Server:
    """A pulsed that serves."""

    address: str
    pid: int
    socket: Path | None
    """Where its metrics are, if it has any."""

    async def metrics(self) -> str:
        assert self.socket is not None, "this server was started without metrics"
        return await read_metrics(self.socket)

    async def statements(self) -> int:
        """Return how many statements it has sent so far; none are known of a server without metrics."""
        return statements_in(await self.metrics()) if self.socket else 0


async def serving_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where a pulsed listens, once it does. RuntimeError with its words if it ends instead."""

    def serving() -> str | None:
        if process.poll() is not None:
            raise RuntimeError(f"pulsed ended: {log.read_text()}")
        for line in log.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if entry["event"] == "serving":
                    return str(entry["address"])
        return None

    return str(await until(serving))


async def until(condition: Callable[[], Found], seconds: float = _READY_SECONDS) -> Found:
    """Return the condition's value once it is true. TimeoutError if it takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        await asyncio.sleep(0.005)
    raise TimeoutError("what the benchmark waited for did not happen")


async def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """Stop a process, by force if it does not follow."""
    process.send_signal(how)
    try:
        await asyncio.to_thread(process.wait, _END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
