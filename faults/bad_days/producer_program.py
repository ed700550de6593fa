"""An application that enqueues continuously: `python -m faults.bad_days.producer_program ADDRESS FILE`.

It records the id of each acknowledged job, one write per line, and has no handler for SIGTERM.
"""

import asyncio
import itertools
import os
import sys
from datetime import timedelta
from pathlib import Path

import pulse
from tests.system.stage import Process, Stage
from tests.system.worker_program import Errand

_CONCURRENT = 3
_PAUSE_SECONDS = 0.005


def start_producer(stage: Stage, address: str) -> Process:
    """Start the program, and return at once."""
    module = "faults.bad_days.producer_program"
    return stage.start_program("producer", "-m", module, address, str(_file_of(stage)))


def acknowledged_by_all(stage: Stage) -> list[str]:
    """The ids of the jobs that were acknowledged to any producer of the stage."""
    file = _file_of(stage)
    return file.read_text().split() if file.exists() else []


def _file_of(stage: Stage) -> Path:
    return stage.directory / "acknowledged"


async def main(address: str, file: str) -> None:
    acknowledged = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    numbers = itertools.count()

    async def enqueue_on_and_on(p: pulse.Pulse) -> None:
        while True:
            # Handlers of both kinds, and more of them than a few slots can keep up with.
            topic = "sync-work" if next(numbers) % 4 == 0 else "work"
            handle = await p.enqueue(topic, Errand(seconds=0.05))
            os.write(acknowledged, f"{handle.id}\n".encode())
            await asyncio.sleep(_PAUSE_SECONDS)

    async with pulse.Pulse(address, timeout=timedelta(seconds=40)) as p:
        await asyncio.gather(*(enqueue_on_and_on(p) for _ in range(_CONCURRENT)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
