"""Lanes of dispatch: one serves at a time, and one that a slow statement holds up is relieved by another.

While statements are quick there is one lane, and claims run one after the other. A statement that takes
longer than CLAIM_PATIENCE keeps its lane until it ends; a further lane serves the others meanwhile. ADR-0046
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

from pulse_server import tuning


class Lane:
    """One run through the work. It ends with its step once it has been relieved."""

    def __init__(self) -> None:
        self.is_relieved = False
        self.alarm: asyncio.TimerHandle | None = None


class Lanes:
    def __init__(self, serve: Callable[[Lane], Coroutine[None, None, None]], *, most: int) -> None:
        self._serve = serve
        self._most = most
        self._held_up = 0
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def is_last(self) -> bool:
        """Whether no further lane could relieve the one that serves now."""
        return self._tasks is None or self._held_up >= self._most - 1

    async def run(self) -> None:
        """Serve until the lane that serves returns without having been relieved."""
        async with asyncio.TaskGroup() as self._tasks:
            self._begin()

    @contextmanager
    def step(self, lane: Lane) -> Iterator[None]:
        """Something that may take long. If it does, another lane takes over."""
        self._watch(lane)
        try:
            yield
        finally:
            if lane.alarm is not None:
                lane.alarm.cancel()
            if lane.is_relieved:
                self._held_up -= 1

    def _begin(self) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._serve(Lane()))

    def _watch(self, lane: Lane) -> None:
        patience = tuning.CLAIM_PATIENCE.total_seconds()
        lane.alarm = asyncio.get_running_loop().call_later(patience, self._relieve, lane)

    def _relieve(self, lane: Lane) -> None:
        if self.is_last:
            self._watch(lane)
            return
        lane.is_relieved = True
        self._held_up += 1
        self._begin()
