"""Producers that submit at a fixed rate, whatever the outcome of the jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pulse
from benchmarks.filling import TOPIC
from benchmarks.scenarios.load import payload

_TICK_SECONDS = 0.02
# Calls under way: bounded, so that a slow server is not flooded. Unaccepted jobs are reported.
_MOST_CALLS = 16
# The most that one call carries, if the producer was late.
_MOST_JOBS = 1_000


class Steady:
    def __init__(
        self, p: pulse.Pulse, rate: float, each: Callable[[int], dict[str, Any]], calls: asyncio.TaskGroup
    ) -> None:
        self._client = p
        self._rate = rate
        self._each = each
        self._calls = calls
        self._under_way = 0
        self.submitted = 0
        """How many jobs were given to the client so far."""
        self.behind = 0
        """How many more should have been by now."""

    async def run(self) -> None:
        began = time.monotonic()
        while True:
            self.behind = int((time.monotonic() - began) * self._rate) - self.submitted
            if self.behind > 0 and self._under_way < _MOST_CALLS:
                jobs = min(self.behind, _MOST_JOBS)
                batch = [self._each(self.submitted + number) for number in range(jobs)]
                self.submitted += jobs
                self._calls.create_task(self._submit(batch))
            await asyncio.sleep(_TICK_SECONDS)

    async def _submit(self, batch: list[dict[str, Any]]) -> None:
        self._under_way += 1
        try:
            await self._client.enqueue_many(TOPIC, batch)
        finally:
            self._under_way -= 1


@asynccontextmanager
async def steady(
    p: pulse.Pulse, rate: float, each: Callable[[int], dict[str, Any]] = payload
) -> AsyncIterator[Steady]:
    """Submit at this rate for the length of the block. At its end every job was taken in."""
    async with asyncio.TaskGroup() as calls:
        load = Steady(p, rate, each, calls)
        clock = calls.create_task(load.run())
        try:
            yield load
        finally:
            clock.cancel()
