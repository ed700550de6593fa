"""Signals as something to wait for, beside sockets."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Bell:
    """Rings at each signal that it was made for. Readable while a ring has not been answered."""

    def __init__(self, ear: socket.socket) -> None:
        self._ear = ear

    def fileno(self) -> int:
        return self._ear.fileno()

    def answer(self) -> list[signal.Signals]:
        """The signals that came since, in their order."""
        try:
            return [signal.Signals(number) for number in self._ear.recv(4096)]
        except BlockingIOError:
            return []


@contextmanager
def bell(signals: Sequence[signal.Signals]) -> Iterator[Bell]:
    """Have the signals ring instead of what they do by themselves, for as long as the block lasts."""
    clapper, ear = socket.socketpair()
    with clapper, ear:
        clapper.setblocking(False)
        ear.setblocking(False)
        previous_clapper = signal.set_wakeup_fd(clapper.fileno(), warn_on_full_buffer=False)
        previous = {number: signal.signal(number, lambda *_: None) for number in signals}
        try:
            yield Bell(ear)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_clapper)
