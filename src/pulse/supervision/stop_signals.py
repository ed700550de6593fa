"""The signals of a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None], replace_all: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for SIGTERM and SIGINT, and `replace_all` for SIGHUP. Restores the handlers afterwards.

    At a terminal SIGHUP means that it was closed, so it stops. Under nohup it stays ignored. Only in the
    main thread: another thread receives no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    actions = {signal.SIGTERM: stop, signal.SIGINT: stop}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        actions[signal.SIGHUP] = stop if _has_terminal() else replace_all
    before = {number: signal.getsignal(number) for number in actions}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number, known in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, known)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
