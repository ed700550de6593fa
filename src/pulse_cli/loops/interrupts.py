"""Defers Ctrl-C until the current step has ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_requested = False

    def request(self, _signal: int, _frame: FrameType | None) -> None:
        """Record the first Ctrl-C; raise at the second."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def between_steps() -> Iterator[Interrupts]:
    """Defer Ctrl-C for the length of a block, which checks for it between its steps."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.request)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
