"""Where the code of a test runs: async handlers in an event loop, `def` handlers in the test's own thread.

A `def` handler runs in the thread of the test, so that it sees the transaction of the test. No event loop may
run there meanwhile: Django refuses its ORM in one, and a blocking client would block it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from pulse.errors import ClientClosed

Result = TypeVar("Result")

_Calls = queue.SimpleQueue[Callable[[], None] | None]

# The calls for the thread of the test, while it waits for a coroutine.
_calls: ContextVar[_Calls | None] = ContextVar("pulse.testing.calls", default=None)


def run(verb: str, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine for a test without an event loop, and block until it is done."""
    if asyncio._get_running_loop() is not None:
        raise ClientClosed(
            f"pulse_kit.{verb}() would block the running event loop: write `await pulse_kit.a{verb}()`."
        )
    returned: list[Result] = []
    raised: list[BaseException] = []

    async def caught() -> None:
        # Not through the event loop: sys.exit() of a handler would end it.
        try:
            returned.append(await make())
        except BaseException as error:
            raised.append(error)

    if uses_django():
        from asgiref.sync import async_to_sync

        # sync_to_async of a handler then comes back to this thread.
        async_to_sync(caught)()
    else:
        _loop_thread().run(caught())
    if raised:
        raise raised[0]
    return returned[0]


async def in_test_thread(function: Callable[[], None]) -> None:
    """Call a function that never raises. A test without an event loop runs it in its own thread."""
    if (calls := _calls.get()) is not None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def call() -> None:
            try:
                function()
            finally:
                loop.call_soon_threadsafe(done.set)

        calls.put(call)
        await done.wait()
    elif uses_django():
        from asgiref.sync import sync_to_async

        await sync_to_async(function, thread_sensitive=True)()
    else:
        await asyncio.to_thread(function)


def uses_django() -> bool:
    """Whether this process has loaded Django's database layer."""
    return "django.db" in sys.modules


class LoopThread:
    """An event loop in a thread, for all tests of the process that have none."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pulse-kit", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine, and calls for this thread, until the coroutine is done."""
        calls: _Calls = queue.SimpleQueue()
        token = _calls.set(calls)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        finally:
            _calls.reset(token)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call()
        except BaseException:
            future.cancel()
            raise
        future.result()


_thread: LoopThread | None = None


def _loop_thread() -> LoopThread:
    global _thread
    if _thread is None or _thread.process != os.getpid():  # a forked child does not have the thread
        _thread = LoopThread()
    return _thread
