"""Ctrl-C between two steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, _signal: int, _frame: FrameType | None) -> None:
        """Note the first Ctrl-C; the second does not wait."""
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True


@contextmanager
def between_steps() -> Iterator[Interrupts]:
    """Hold Ctrl-C back for the length of a block, which asks by itself whether there was one."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():  # where nobody hears signals
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.ask)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
