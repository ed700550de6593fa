"""Runs the async verbs of a blocking client, in an event loop in a thread."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

from pulse import tuning
from pulse.blocking.loop_thread import LoopThread
from pulse.client.caller import Caller
from pulse.errors import ClientClosed

V = ParamSpec("V")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Bridge:
    """Runs async verbs for other threads. The thread starts with the first call."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._is_closed = False
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        _all.add(self)

    def call(
        self, verb: Callable[V, Coroutine[Any, Any, Result]], *args: V.args, **kwargs: V.kwargs
    ) -> Result:
        """Run an async verb and block until it is done."""
        in_event_loop: Callable[V, Coroutine[Any, Any, Result]] = getattr(verb, "in_event_loop", verb)
        return self._open_thread().run(in_event_loop(*args, **kwargs))

    def iterate(self, items: AsyncGenerator[Item, None]) -> Generator[Item, None, None]:
        """Yield the items of an async generator, blocking for each. Closing this generator closes it."""
        thread = self._open_thread()
        try:
            while (item := thread.run(_next(items))) is not None:
                yield item
        finally:
            if not thread.is_over:
                with contextlib.suppress(Exception):
                    thread.run(items.aclose(), tuning.EXIT_TIMEOUT_SECONDS)

    def reopen(self) -> None:
        """Allow calls again after a close."""
        self._is_closed = False

    def check_open(self) -> None:
        """Raise ClientClosed after a close."""
        if self._is_closed:
            raise ClientClosed("This client is closed. Make a new one, or enter it with `with`.")

    def close(self) -> None:
        """Close the connection and end its thread. Later calls raise ClientClosed."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            _close(thread, self._caller)

    def _open_thread(self) -> LoopThread:
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._thread = LoopThread()
                weakref.finalize(self, _close, self._thread, self._caller)
            return self._thread

    def _forget_thread(self) -> None:
        # A new lock too: in a forked child the old one may be held by a thread of the parent.
        self._lock = threading.Lock()
        self._thread = None


async def _next(items: AsyncGenerator[Item, None]) -> Item | None:
    return await anext(items, None)


def _close(thread: LoopThread, caller: Caller) -> None:
    if thread.is_over:
        return  # the finalizer also runs at exit, after close()
    with contextlib.suppress(Exception):
        thread.run(caller.close_session(), tuning.EXIT_TIMEOUT_SECONDS)
    thread.stop()


def _forget_threads() -> None:
    for bridge in list(_all):
        bridge._forget_thread()


_all: weakref.WeakSet[Bridge] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
