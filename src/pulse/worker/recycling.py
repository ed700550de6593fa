"""Ends a worker process after a number of jobs, or once it takes too much memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import uniform

from pulse.worker.held_jobs import HeldJob

Settled = Callable[[Iterable[HeldJob]], None]

# Each process draws its own limit from here up to max_jobs: a fleet that started at one instant must not be
# replaced at one instant.
JITTER_FROM = 0.9
# Reading it takes 20 µs.
MEMORY_LOOK_SECONDS = 1.0


class Recycling:
    """Calls `due` once, when this process has done its share of jobs or has grown past its limit.

    Without limits nothing is counted and nothing is read.
    """

    def __init__(self, max_jobs: int | None, max_memory: int | None, due: Callable[[str], None]) -> None:
        self._jobs_left = None if max_jobs is None else max(1, round(max_jobs * uniform(JITTER_FROM, 1.0)))
        self._max_memory = max_memory
        self._due = due
        self._is_due = False
        self._done = 0
        self._watch: asyncio.Task[None] | None = None

    def counting(self, settled: Settled) -> Settled:
        """Return the callback for reported jobs. It counts them if there is a limit."""
        if self._jobs_left is None:
            return settled

        def settle(jobs: Iterable[HeldJob]) -> None:
            reported = list(jobs)
            settled(reported)
            self._count(len(reported))

        return settle

    def start(self) -> None:
        """Begin to watch the memory, if there is a limit."""
        if self._max_memory is not None:
            self._watch = asyncio.create_task(self._watch_memory(self._max_memory), name="pulse-memory")

    def close(self) -> None:
        """Stop watching: the worker drains."""
        self._is_due = True
        if self._watch is not None:
            self._watch.cancel()

    def _count(self, jobs: int) -> None:
        self._done += jobs
        if self._jobs_left is not None and self._done >= self._jobs_left:
            self._report(f"it has done {self._done} jobs")

    async def _watch_memory(self, limit: int) -> None:
        while True:
            if (used := memory_bytes()) > limit:
                self._report(f"it takes {used >> 20} MiB of memory, more than {limit >> 20} MiB")
                return
            await asyncio.sleep(MEMORY_LOOK_SECONDS)

    def _report(self, reason: str) -> None:
        if not self._is_due:
            self._is_due = True
            self._due(reason)


def memory_bytes() -> int:
    """Return the resident memory of this process; without /proc, its largest so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
