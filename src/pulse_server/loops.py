"""Repeats an action until it is stopped: the one form of every background loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pulse_server.domain.errors import PulseError
from pulse_server.telemetry.metrics import Metrics

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
