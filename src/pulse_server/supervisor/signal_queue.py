"""Signals as something to wait for, beside sockets."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class SignalQueue:
    """The signals that arrived. Readable while there are some."""

    def __init__(self, reader: socket.socket) -> None:
        self._reader = reader

    def fileno(self) -> int:
        return self._reader.fileno()

    def take(self) -> list[signal.Signals]:
        """Return the signals that arrived since the last call, in their order."""
        try:
            return [signal.Signals(number) for number in self._reader.recv(4096)]
        except BlockingIOError:
            return []


@contextmanager
def queued_signals(signals: Sequence[signal.Signals]) -> Iterator[SignalQueue]:
    """Queue the signals instead of their default actions, for as long as the block lasts."""
    writer, reader = socket.socketpair()
    with writer, reader:
        writer.setblocking(False)
        reader.setblocking(False)
        previous_writer = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        previous = {number: signal.signal(number, lambda *_: None) for number in signals}
        try:
            yield SignalQueue(reader)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_writer)
