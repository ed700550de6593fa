"""Runs the async verbs of a blocking client, in an event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.jobs.caller import Caller, result_of
from pulse.wire.redirection import current as current_redirection

_DJANGO = "pulse.django.clients"
_SDK = str(Path(__file__).parents[1]) + os.sep

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

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the event loop, and do not wait for it. Raises RuntimeError if it is closed."""
        self._loop.call_soon_threadsafe(callback)

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


V = ParamSpec("V")
Item = TypeVar("Item")


class Bridge:
    """Runs async verbs for other threads. The thread starts with the first call."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._is_closed = False
        self._has_warned = False
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        _all.add(self)

    def call(
        self, verb: Callable[V, Coroutine[Any, Any, Result]], *args: V.args, **kwargs: V.kwargs
    ) -> Result:
        """Run an async verb and block until it is done."""
        self._warn_in_event_loop()
        in_event_loop: Callable[V, Coroutine[Any, Any, Result]] = getattr(verb, "in_event_loop", verb)
        return self._open_thread().run(in_event_loop(*args, **kwargs))

    def iterate(self, items: AsyncGenerator[Item, None]) -> Generator[Item, None, None]:
        """Yield the items of an async generator, blocking for each. Closing this generator closes it."""
        self._warn_in_event_loop()
        thread = self._open_thread()
        try:
            while (item := thread.run(_next(items))) is not None:
                yield item
        finally:
            if not thread.is_over:
                with contextlib.suppress(Exception):
                    thread.run(items.aclose(), tuning.EXIT_TIMEOUT_SECONDS)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the event loop, and do not wait for it. Does nothing after a close."""
        with contextlib.suppress(ClientClosed, RuntimeError):
            self._open_thread().call_soon(callback)

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
            self._is_closed = current_redirection() is None  # the tests of a process share a client
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

    def _warn_in_event_loop(self) -> None:
        """Warn once if a call blocks an event loop: everything else that runs in it waits."""
        if asyncio._get_running_loop() is None or self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            "A SyncPulse was called in a running event loop: everything else in the loop waits for the call. "
            "Use pulse.Pulse and await its verbs, or call the SyncPulse with asyncio.to_thread()."
            + (" In Django: await pulse.django.aenqueue(job, …)." if _DJANGO in sys.modules else ""),
            RuntimeWarning,
            stacklevel=_levels_to_the_caller(),
        )

    def _forget_thread(self) -> None:
        # A new lock too: in a forked child the old one may be held by a thread of the parent.
        self._lock = threading.Lock()
        self._thread = None


def _levels_to_the_caller() -> int:
    """Return the level of the first frame outside of the SDK, counted from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SDK):
        level, frame = level + 1, frame.f_back
    return level


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
