"""The threads of sync handlers, and errors that are raised in them from other threads.

An error that comes up between taking a lock and the `try` that releases it leaves the lock taken. In
`logging`, or in an import, it would block every thread of the process for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pulse import tuning
from pulse.outcomes import Cancelled

_Outcome = tuple[Any, BaseException | None]


class ThreadCall:
    """A function that runs in a thread, or is about to."""

    __slots__ = (
        "_args",
        "_context",
        "_function",
        "ends_thread",
        "future",
        "interrupted_by",
        "is_delivered",
        "is_over",
        "outcome",
        "thread_id",
    )

    def __init__(
        self, future: asyncio.Future[_Outcome], function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.future = future
        self.thread_id: int | None = None
        self.outcome: _Outcome | None = None
        self.is_over = self.is_delivered = self.ends_thread = False
        self.interrupted_by: type[Cancelled] | None = None
        self._context = contextvars.copy_context()
        self._function = function
        self._args = args

    def run(self) -> None:
        """Call the function, unless it was interrupted before. In its thread."""
        self.thread_id = threading.get_ident()
        try:
            if self.interrupted_by is not None:
                raise self.interrupted_by
            self.outcome = self._context.run(self._function, *self._args), None
        except BaseException as error:
            self.outcome = None, error

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the thread, at its next bytecode. Not while it waits in C code.

        The thread may end the call first. Then it must not take another call: the error could come
        up there. So the call is marked before. A thread that ends a marked call ends itself.
        """
        if self.interrupted_by is not None:
            return
        self.interrupted_by = error
        if self.thread_id is not None and not raise_in_thread(self.thread_id, error, lambda: self.is_over):
            insisting = threading.Thread(target=self._insist, args=(self.thread_id, error), daemon=True)
            insisting.start()

    def _insist(self, thread_id: int, error: type[Cancelled]) -> None:
        pause = tuning.FIRST_INTERRUPT_SECONDS
        while not raise_in_thread(thread_id, error, lambda: self.is_over):
            time.sleep(pause)
            pause = min(pause * 1.5, tuning.LONGEST_INTERRUPT_SECONDS)

    def kill(self) -> bool:
        """Return False: a thread cannot be killed."""
        return False


class HandlerThreads:
    """Runs functions in threads, which are started when needed and reused.

    They are daemon threads, unlike the threads of concurrent.futures: a handler that never returns
    must not keep the process alive after the worker has stopped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._process = os.getpid()
        self._most = most
        self._threads = 0
        self._started = 0
        self._busy = 0
        self._queue: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()

    def start(self, function: Callable[..., Any], *args: Any) -> ThreadCall:
        """Call the function in a thread, in a copy of this task's contextvars."""
        call = ThreadCall(self._loop.create_future(), function, args)
        self._busy += 1
        self._queue.put(call)
        self._start_thread()
        return call

    async def result(self, call: ThreadCall) -> Any:
        """Wait for the call. Returns its result, or raises its error."""
        result, error = await call.future
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the threads, each after its current call."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = self._most = 0

    def _start_thread(self) -> None:
        if self._threads < min(self._busy, self._most):
            self._threads += 1
            self._started += 1
            threading.Thread(target=self._work, name=f"pulse-handler-{self._started}", daemon=True).start()

    def _work(self) -> None:
        current: list[ThreadCall] = []
        while True:
            try:
                return self._take_calls(current)
            except Cancelled:
                continue  # it came up when the function had returned: the call has to be delivered

    def _take_calls(self, current: list[ThreadCall]) -> None:
        """Run calls, and deliver them. `current` has the call to deliver."""
        while True:
            if not current:
                if (taken := self._queue.get()) is None:
                    return
                current.append(taken)
                taken.run()
                del taken  # otherwise the thread would keep the last job in memory until the next one
            (call,) = current
            if os.getpid() != self._process:
                os._exit(os.EX_SOFTWARE)  # the function forked, and this is the child
            call.outcome = call.outcome or (None, Cancelled())
            call.is_over = True
            # After that no error is raised any more, and before it the call was marked.
            call.ends_thread = call.interrupted_by is not None
            if not self._post(call) or call.ends_thread:
                return
            current.clear()
            del call

    def _post(self, call: ThreadCall) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._deliver, call)
        except RuntimeError:
            return False  # the loop was closed
        return True

    def _deliver(self, call: ThreadCall) -> None:
        if call.is_delivered:
            return  # the thread was interrupted while it delivered, and repeated it
        call.is_delivered = True
        self._busy -= 1
        if call.ends_thread:
            self._threads -= 1
            self._start_thread()
        if not call.future.done():
            call.future.set_result(call.outcome or (None, None))


_FILES_WITH_SHARED_LOCKS = frozenset({logging.__file__, "<frozen importlib._bootstrap>"})


def raise_in_thread(thread_id: int, error: type[BaseException], is_over: Callable[[], bool]) -> bool:
    """Raise the error in the thread, at its next bytecode, unless it is over. Not while it waits in C code.

    Returns False if the thread is inside of shared locks: try again a moment later.
    """
    import ctypes  # not before it is needed: few workers do

    # Release the interpreter's lock and take it again. No other thread gets it within the next
    # milliseconds, so the thread stays at the position that is checked below.
    time.sleep(0)
    if is_over():
        return True
    if _is_inside_shared_locks(thread_id):
        return False
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
    return True


def take_back(thread_id: int) -> None:
    """Take back an error that has not come up yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), None)


def _is_inside_shared_locks(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code.co_filename in _FILES_WITH_SHARED_LOCKS:
            return True
        frame = frame.f_back
    return False
