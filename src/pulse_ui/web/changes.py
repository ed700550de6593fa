"""Change events for open pages: one watch of pulsed for all pages of a user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pulse
from pulse_ui import tuning


class Listener:
    """One open page. It is notified that something changed, and fetches itself again."""

    def __init__(self, job_id: str | None) -> None:
        self._job_id = job_id
        self._changed = asyncio.Event()
        self.is_over = False

    def notify(self, news: pulse.Transitions) -> None:
        # Progress concerns the page of its job only: a list would be fetched again every second.
        if (
            news.missed
            or news.interrupted
            or any(
                change.progress is None if self._job_id is None else change.job_id == self._job_id
                for change in news.transitions
            )
        ):
            self._changed.set()

    def end(self) -> None:
        self.is_over = True
        self._changed.set()

    async def changes(self) -> AsyncIterator[bool]:
        """Yield True for a change, at most once a second, and False as a heartbeat."""
        while not self.is_over:
            heartbeat = tuning.STREAM_HEARTBEAT.total_seconds()
            try:
                async with asyncio.timeout(heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                yield False
                continue
            if self.is_over:
                return
            self._changed.clear()
            yield True
            await asyncio.sleep(tuning.CHANGE_PAUSE.total_seconds())


class ChangeFeed:
    """Watches pulsed while at least one page listens."""

    def __init__(self, client: pulse.Pulse) -> None:
        self._client = client
        self._listeners: set[Listener] = set()
        self._watch: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def listening(self, job_id: str | None) -> Iterator[Listener]:
        listener = Listener(job_id)
        self._listeners.add(listener)
        if self._watch is None:
            self._watch = asyncio.create_task(self._follow())
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._watch is not None:
                self._watch.cancel()
                self._watch = None

    async def close(self) -> None:
        """End every page's stream."""
        for listener in self._listeners:
            listener.end()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _follow(self) -> None:
        # Without permission or server there are no events: pages also refresh by themselves.
        while True:
            with contextlib.suppress(pulse.PulseError):
                async for news in self._client.watch(progress=True, timeout=tuning.CALL_TIMEOUT):
                    for listener in self._listeners:
                        listener.notify(news)
            await asyncio.sleep(tuning.WATCH_RETRY.total_seconds())
