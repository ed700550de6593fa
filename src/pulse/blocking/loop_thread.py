"""An event loop in its own thread, for callers without asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.handlers.thread_calls import result_of

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads. A daemon thread, so that it does not keep the process alive."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._is_ending = False
        self._thread = threading.Thread(target=self._serve, name="pulse-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_seconds: float | None = None) -> Result:
        """Run the coroutine and block until it is done. Raises ClientClosed if the loop ends first."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientClosed("A SyncPulse cannot be called from its own event loop. Use pulse.Pulse there.")
        future = self._begin(coroutine)
        try:
            # A caller that was interrupted (Ctrl-C, a worker timeout) cancels its call.
            return result_of(future, timeout_seconds)
        except CancelledError:
            raise ClientClosed("The client was closed during the call.") from None

    def _begin(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        # Under the lock: a call added after the loop has ended would block forever.
        with self._lock:
            if self._is_ending:
                coroutine.close()
                raise ClientClosed("The client was closed before the call.")
            future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    @property
    def is_over(self) -> bool:
        """True once it was stopped, and in a forked child, which does not have the thread."""
        return self._process != os.getpid() or self._loop.is_closed()

    def stop(self) -> None:
        """Stop the loop and its thread, in bounded time. Does nothing if `is_over`."""
        if self.is_over:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(tuning.EXIT_TIMEOUT_SECONDS)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        with self._lock:
            self._is_ending = True
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=tuning.EXIT_TIMEOUT_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        for future in tuple(self._under_way):
            future.cancel()
