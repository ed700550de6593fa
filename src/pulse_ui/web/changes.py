"""Tells open pages that jobs have changed: one watch of pulsed for all pages of one user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pulse
from pulse_ui import tuning


class Listener:
    """One open page. It learns that something changed, not what: it asks again for what it shows."""

    def __init__(self, job_id: str | None) -> None:
        self._job_id = job_id
        self._changed = asyncio.Event()
        self.is_over = False

    def notify(self, news: pulse.Transitions) -> None:
        may_concern = (
            self._job_id is None
            or news.missed
            or news.interrupted
            or any(change.job_id == self._job_id for change in news.transitions)
        )
        if may_concern and (news.transitions or news.missed or news.interrupted):
            self._changed.set()

    def end(self) -> None:
        self.is_over = True
        self._changed.set()

    async def changes(self) -> AsyncIterator[bool]:
        """Yield True when something changed, at most once a second, and False when it is quiet for long."""
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
    """Watches as long as anybody listens."""

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
        # Whoever may not watch, or finds no server, goes without news: pages refresh by themselves as well.
        while True:
            with contextlib.suppress(pulse.PulseError):
                async for news in self._client.watch(timeout=tuning.CALL_TIMEOUT):
                    for listener in self._listeners:
                        listener.notify(news)
            await asyncio.sleep(tuning.WATCH_RETRY.total_seconds())
