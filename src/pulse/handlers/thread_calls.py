"""Calls from the thread of a `def` handler into an event loop, which the thread waits for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from pulse import tuning
from pulse.errors import ClientClosed

Result = TypeVar("Result")

current_context: ContextVar[Any] = ContextVar("pulse.current")
"""The context of the job whose handler runs here. Unset elsewhere."""


def run_in_loop(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run the coroutine in the loop of another thread, and block until it is done.

    Raises ClientClosed if the loop ends first.
    """
    try:
        return result_of(asyncio.run_coroutine_threadsafe(coroutine, loop))
    except concurrent.futures.CancelledError:
        raise ClientClosed("The worker stopped during the call.") from None


def result_of(future: concurrent.futures.Future[Result], timeout_seconds: float | None = None) -> Result:
    """Wait for the result. An error raised in this thread, such as TimedOut, cancels the call.

    Python raises such an error between two bytecodes. A wait without a timeout never reaches the
    next.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    try:
        while True:
            left = tuning.THREAD_LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            try:
                return future.result(max(0.0, min(left, tuning.THREAD_LOOK_SECONDS)))
            except TimeoutError:
                if future.done():
                    return future.result()  # it ended just now, or with this error
                if left <= 0:
                    raise
    except BaseException:
        future.cancel()
        raise
