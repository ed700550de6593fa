"""Handlers record their starts here. Each process writes its own recording, also after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from benchmarks.recorder import Recording

_lock = threading.Lock()
_recordings: dict[int, Recording] = {}


def say_connected() -> None:
    """Report to the observer that this worker process is up."""
    with _lock:
        _own().connected()


async def until_let_loose() -> None:
    """Report to the observer that this worker process is up, and return when it may take jobs."""
    say_connected()
    go = Path(os.environ["PULSE_BENCH_RECORDINGS"]) / "go"
    while not go.exists():
        await asyncio.sleep(0.001)


def record(submitted: float) -> None:
    """Record that a job, submitted at that time, starts now."""
    started = time.time()
    with _lock:  # Thread pools share the process's recording.
        _own().hit(submitted, started)


def _own() -> Recording:
    process = os.getpid()
    if process not in _recordings:
        _recordings[process] = Recording.create(Path(os.environ["PULSE_BENCH_RECORDINGS"]))
    return _recordings[process]
