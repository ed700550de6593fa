"""Holds the resources of a worker open, from before its first job until after its last handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pulse import tuning
from pulse.handlers.registry import Registry

logger = logging.getLogger("pulse.worker")


class Lifespan:
    """Opens the resources of a worker, runs it, and closes them."""

    def __init__(
        self, registry: Registry, topics: Sequence[str], stop: asyncio.Event, hurry: asyncio.Event
    ) -> None:
        """`stop` ends the opening. `hurry` ends the closing, after a moment."""
        self._surroundings = registry.surroundings
        self._handlers = [handler for handler in map(registry.get, topics) if handler is not None]
        self._stop = stop
        self._hurry = hurry
        self._is_open = asyncio.Event()
        self._may_close = asyncio.Event()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open, work, close. Raises ResourceFailed if opening fails; returns if it is stopped."""
        if not self._surroundings.has_resources:
            async with self._surroundings.opened(self._handlers):
                await work()
            return
        # In a separate task: the task that enters an async context manager has to exit it.
        holding = asyncio.create_task(self._hold(), name="pulse-resources")
        try:
            await self._first_of(holding, self._is_open, self._stop)
            if self._is_open.is_set():
                await work()
            elif not holding.done():
                holding.cancel()  # it was stopped while it opened
        except BaseException:
            if not self._is_open.is_set():
                holding.cancel()
            await self._close(holding)
            raise
        await self._close(holding)
        if not holding.cancelled() and (error := holding.exception()) is not None:
            raise error

    async def _hold(self) -> None:
        async with self._surroundings.opened(self._handlers):
            self._is_open.set()
            await self._may_close.wait()

    async def _close(self, holding: asyncio.Task[None]) -> None:
        self._may_close.set()
        while not holding.done():
            try:
                await self._first_of(holding, self._hurry)
            except asyncio.CancelledError:  # run() was canceled for the second time
                self._hurry.set()
            if self._hurry.is_set() and not holding.done():
                await asyncio.wait({holding}, timeout=tuning.CANCEL_GRACE_SECONDS)
                if not holding.done():
                    holding.cancel()
                    await asyncio.wait({holding}, timeout=tuning.CANCEL_GRACE_SECONDS)
                    logger.warning("The resources of the worker could not be closed in time.")
                    return
        if not holding.cancelled():
            holding.exception()  # `run` raises it, unless `run` raises another error

    async def _first_of(self, holding: asyncio.Task[None], *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait({holding, *waits}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
