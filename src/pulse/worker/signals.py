"""Handles SIGTERM and SIGINT while a worker runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def signals_handled(callback: Callable[[], None], enabled: bool) -> Iterator[None]:
    """Call `callback` in the event loop for each signal. Restores the handlers afterwards.

    Only in the main thread, and only for signals without a handler: an application that runs the worker next
    to other tasks has its own way to stop, and cancels it.
    """
    before: dict[signal.Signals, Any] = {}
    loop = asyncio.get_running_loop()
    if enabled and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            known = signal.getsignal(number)
            if _is_free(known):
                with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                    loop.add_signal_handler(number, callback)
                    before[number] = known
    try:
        yield
    finally:
        for number, known in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, known)


def interrupts_main_thread() -> bool:
    """True if a SIGINT raises KeyboardInterrupt right here: in the main thread, without a signal handler."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _is_free(handler: Any) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run() turns SIGINT into a cancellation, which would end in a traceback instead of a return.
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
