"""One run: jobs at a fixed rate, a worker for them, and the time of each job."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

import pulse
from benchmarks.load_generator.options import Load

# Calls under way. A server that does not keep up is not drowned: jobs wait here, and their wait counts.
_MOST_CALLS = 500
_CONNECTED_SECONDS = 10
# Time for the worker to finish the remaining jobs after the last submit.
DRAIN_SECONDS = 30


@dataclass(slots=True)
class Measured:
    """Seconds from the moment that a job was due: a client that lags hides nothing."""

    submits: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    """Sentences of failed submits, and how often each came."""
    seconds: float = 0
    due: int = 0
    """How many jobs the rate asked for until the end."""


class Run:
    def __init__(self, producer: pulse.Pulse, worker: pulse.Pulse | None, load: Load) -> None:
        self._producer = producer
        self._worker = worker
        self._load = load
        self._due_at: dict[int, float] = {}
        self._all_started = asyncio.Event()
        self.measured = Measured()

    async def run(self) -> Measured:
        """Submit until the time is over, then let the worker finish."""
        working = asyncio.create_task(self._work()) if self._worker is not None else None
        try:
            await self._submit_all()
            if working is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        await self._started_all()
        finally:
            if working is not None:
                working.cancel()
                with suppress(asyncio.CancelledError):
                    await working
        return self.measured

    async def _submit_all(self) -> None:
        load, calls = self._load, asyncio.Semaphore(_MOST_CALLS)
        payload = "x" * load.payload_bytes
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            number = 0
            while (due := number / load.rate) < load.seconds:
                await asyncio.sleep(max(0, began + due - time.perf_counter()))
                await calls.acquire()
                group.create_task(self._submit(number, began + due, payload, calls))
                number += 1
                self.measured.due = number
                if time.perf_counter() - began > 2 * load.seconds:
                    break  # the server takes less than half of the rate: the number due is reported
        self.measured.seconds = time.perf_counter() - began

    async def _submit(self, number: int, due_at: float, payload: str, calls: asyncio.Semaphore) -> None:
        self._due_at[number] = due_at
        try:
            await self._producer.enqueue(
                self._load.topic, {"number": number, "filler": payload}, max_attempts=1
            )
            self.measured.submits.append(time.perf_counter() - due_at)
        except pulse.PulseError as error:
            sentence = str(error)
            self.measured.refused[sentence] = self.measured.refused.get(sentence, 0) + 1
            self._due_at.pop(number, None)
        finally:
            calls.release()

    async def _work(self) -> None:
        assert self._worker is not None
        seconds = self._load.work_seconds

        async def handle(number: int, filler: str) -> None:
            due_at = self._due_at.pop(number, None)
            if due_at is not None:
                self.measured.starts.append(time.perf_counter() - due_at)
            if seconds:
                await asyncio.sleep(seconds)
            if not self._due_at:
                self._all_started.set()

        self._worker.register(self._load.topic, handle)
        await self._worker.run(handle_signals=False)

    async def _started_all(self) -> None:
        while self._due_at:
            self._all_started.clear()
            await self._all_started.wait()
