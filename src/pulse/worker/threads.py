"""The threads of sync handlers."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Work = tuple[
    "asyncio.Future[tuple[Any, BaseException | None]]", contextvars.Context, Callable[..., Any], Any
]


class HandlerThreads:
    """Runs functions in threads, which are started when needed and reused.

    They are daemon threads, unlike those of concurrent.futures: a handler that never returns must not keep
    the process alive after the worker has stopped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._threads = 0
        self._busy = 0
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call the function in a thread, in a copy of this task's contextvars. Returns its result."""
        future: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self._busy += 1
        self._queue.put((future, contextvars.copy_context(), function, args))
        if self._threads < min(self._busy, self._most):
            self._threads += 1
            threading.Thread(target=self._work, name=f"pulse-handler-{self._threads}", daemon=True).start()
        result, error = await future
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the threads, each after its current call."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = 0

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            future, context, function, args = work
            result, error = None, None
            try:
                result = context.run(function, *args)
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._deliver, future, result, error)
            except RuntimeError:
                return  # the loop was closed
            # Otherwise the thread would keep the last job in memory until the next one.
            del work, future, context, function, args, result, error

    def _deliver(
        self,
        future: asyncio.Future[tuple[Any, BaseException | None]],
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result((result, error))
