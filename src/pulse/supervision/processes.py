"""Shared by the supervisors of workers and of servers. Imports nothing of pulse.

A process is tied to its supervisor by a socket. Any end of the supervisor, SIGKILL included, closes
it. No signal from the kernel is needed, so this works on every system.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from random import uniform


def exit_words(code: int) -> str:
    """Return how a process with this exit code ended: `exit code 3`, or the name of a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class Restarts:
    """Counts the starts in a row of a process that died young. Waits double, up to the longest."""

    def __init__(self, first_seconds: float, longest_seconds: float, stable_seconds: float) -> None:
        """A process that lived for `stable_seconds` is started again at once."""
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._stable_seconds = stable_seconds
        self.in_a_row = 0

    def wait_seconds(self, lived_seconds: float) -> float:
        """Return how long to wait before the next start."""
        if lived_seconds >= self._stable_seconds:
            self.in_a_row = 0
            return 0.0
        return self.failed()

    def failed(self) -> float:
        """Count a start that failed, and return how long to wait before the next."""
        self.in_a_row += 1
        ceiling = min(self._longest_seconds, self._first_seconds * 2 ** min(self.in_a_row - 1, 16))
        return uniform(ceiling / 2, ceiling)


class ProcessEnd:
    """The end of a process. A thread reads it, so that a blocked event loop does not hide a death."""

    def __init__(self, descriptor: int, number: int) -> None:
        """Raises OSError if the descriptor is no socket."""
        self.number = number
        self._connection = socket.socket(fileno=descriptor)
        # Programs that this process starts must not keep the socket open.
        self._connection.set_inheritable(False)
        threading.Thread(target=self._listen, name="pulse-lifeline", daemon=True).start()

    def send(self, line: str) -> None:
        """Send a line to the supervisor."""
        with contextlib.suppress(OSError):  # the supervisor is gone; the reading thread sees that
            self._connection.sendall(line.encode() + b"\n")

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._received(line.decode().strip())
        self._abandoned()

    def _received(self, line: str) -> None:
        """Take a line of the supervisor. In the reading thread."""

    def _abandoned(self) -> None:
        """End the process: the supervisor is gone. In the reading thread."""
        raise NotImplementedError
