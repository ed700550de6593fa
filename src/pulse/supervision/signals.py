"""Handles SIGTERM, SIGINT and SIGHUP while a worker or a supervisor runs.

A handler may fork: `multiprocessing` does it for a process or a pool. The child has the worker's handlers and
the pipe that wakes the worker's event loop: a signal to the child would not end it, but stop the worker. So a
child has the default handlers, from its first moment on. docs/figures.md#forks-and-gevent
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_IN_A_CHILD: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}

_handled: set[signal.Signals] = set()
"""Signals that a worker of this process handles."""
_forking = threading.local()


@contextlib.contextmanager
def signals_handled(callback: Callable[[], None], enabled: bool) -> Iterator[None]:
    """Call `callback` in the event loop for each SIGTERM and SIGINT of a worker.

    Only in the main thread, and only for signals without a handler: an application that runs the worker next
    to other tasks has its own way to stop, and cancels it.
    """
    actions = {number: callback for number in _SIGNALS if enabled and _is_free(signal.getsignal(number))}
    with handled_in_loop(actions) as before:
        _handled.update(before)
        try:
            yield
        finally:
            _handled.difference_update(before)


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None], replace_all: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for SIGTERM and SIGINT of a supervisor, and `replace_all` for SIGHUP.

    At a terminal SIGHUP means that it was closed, so it stops. Under nohup it stays ignored.
    """
    actions = dict.fromkeys(_SIGNALS, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        actions[signal.SIGHUP] = stop if _has_terminal() else replace_all
    with handled_in_loop(actions):
        yield


@contextlib.contextmanager
def handled_in_loop(
    actions: Mapping[signal.Signals, Callable[[], None]],
) -> Iterator[Mapping[signal.Signals, Any]]:
    """Call these in the event loop. Yields the handlers before, and restores them afterwards.

    Only in the main thread: another thread receives no signals.
    """
    before: dict[signal.Signals, Any] = {}
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number, action in actions.items():
            known = signal.getsignal(number)
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, action)
                before[number] = known
    try:
        yield before
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


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


# ------------------------------------------------------------ forks


def _before_fork() -> None:
    """Block signals: a signal to the child before it has its own handlers would stop the worker."""
    if _handled:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _handled)


def _after_fork() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if _handled:
        signal.set_wakeup_fd(-1)
        pending = signal.sigpending()
        for number in _handled:
            # A pending SIGINT ends the child: Python drops an error raised between the fork and its
            # return.
            signal.signal(number, signal.SIG_DFL if number in pending else _IN_A_CHILD[number])
        _handled.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
