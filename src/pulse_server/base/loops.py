"""Repeats an action until it is stopped: `Loop`, the one form of every background loop.

Long lists are worked through in slices: the event loop serves other tasks in between. Leases are measured
with `lease_clock`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from pulse_server.base.errors import PulseError
from pulse_server.base.metrics import Metrics

if hasattr(time, "CLOCK_BOOTTIME"):

    def lease_clock() -> float:
        """Seconds that never run backwards and continue while the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    # Stops while the machine sleeps, which a server's machine does not do.
    lease_clock = time.monotonic

# Entries to count and views to convert in one turn of the event loop: some 5 ms.
TURN_ENTRIES = 1000
TURN_VIEWS = 100

Entry = TypeVar("Entry")
Result = TypeVar("Result")


async def in_turns(entries: Sequence[Entry], size: int = TURN_ENTRIES) -> AsyncIterator[Sequence[Entry]]:
    """Yield the entries in slices, and let other tasks run after each."""
    for begin in range(0, len(entries), size):
        if begin:
            await asyncio.sleep(0)
        yield entries[begin : begin + size]


async def each_in_turns(
    convert: Callable[[Entry], Result], entries: Sequence[Entry], size: int = TURN_VIEWS
) -> list[Result]:
    """Convert each entry, and let other tasks run after each slice."""
    if len(entries) <= size:
        return [convert(entry) for entry in entries]
    results: list[Result] = []
    async for some in in_turns(entries, size):
        results += map(convert, some)
    return results


log = logging.getLogger(__name__)


class Loop:
    """Runs one action every interval. It stops between actions, never inside one.

    The action may return how long to sleep instead of the interval. A blip is logged when it begins and when
    it is over, and met again at the next tick; it never ends the loop.
    """

    def __init__(
        self, name: str, action: Callable[[], Awaitable[timedelta | None]], interval: timedelta
    ) -> None:
        self.name = name
        self._action = action
        self._interval = interval
        self._is_stopping = False
        self._wake = asyncio.Event()
        self._ticks = 0
        self._ticked = asyncio.Condition()
        self._is_failing = False
        self._metrics: Metrics | None = None
        self._least_pause = timedelta(0)

    def report_to(self, metrics: Metrics) -> None:
        """Count rounds that fail."""
        self._metrics = metrics

    async def run(self, after: timedelta = timedelta(0)) -> None:
        """Run until stop() is called, for the first time after this long."""
        await self._sleep(after)
        while not self._is_stopping:
            self._wake.clear()
            self._least_pause = timedelta(0)
            pause = await self._act()
            async with self._ticked:
                self._ticks += 1
                self._ticked.notify_all()
            await self._sleep(max(self._least_pause, self._interval if pause is None else pause))

    def stop(self) -> None:
        """End after the action that is under way."""
        self._is_stopping = True
        self._wake.set()

    def nudge(self) -> None:
        """Act now, or once more if it is acting now."""
        self._wake.set()

    def rest(self, at_least: timedelta) -> None:
        """Sleep no less than this after the action that is under way, even if it fails."""
        self._least_pause = at_least

    async def wait_for_ticks(self, count: int) -> None:
        """Return once that many more actions are over: the signal that tests wait for instead of sleeping."""
        async with self._ticked:
            target = self._ticks + count
            await self._ticked.wait_for(lambda: self._ticks >= target)

    async def _act(self) -> timedelta | None:
        try:
            pause = await self._action()
        except PulseError as error:
            self._count_failure()
            if not self._is_failing:
                log.warning("loop_failing", extra={"loop": self.name, "reason": str(error)})
            self._is_failing = True
            return None
        except Exception:
            self._count_failure()
            log.exception("loop_failed", extra={"loop": self.name})
            return None
        if self._is_failing:
            log.info("loop_recovered", extra={"loop": self.name})
            self._is_failing = False
        return pause

    def _count_failure(self) -> None:
        if self._metrics is not None:
            self._metrics.loop_failures.add(self.name)

    async def _sleep(self, pause: timedelta) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), pause.total_seconds())
        except TimeoutError:
            return
