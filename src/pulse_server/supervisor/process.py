"""One server process, as its supervisor sees it, and signals as something to wait for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from pulse_server.supervisor.lifeline import VARIABLE, ProcessState


class ServerProcess:
    """Runs as soon as it is made, and ends by itself when this process does."""

    def __init__(self, environment: Mapping[str, str], number: int) -> None:
        self.address = ""
        self.failed: tuple[str, ...] = ()
        self.is_connected = True
        self._unread = b""
        self._link, its_end = socket.socketpair()
        self._link.setblocking(False)
        with its_end:
            # Secrets travel in the environment: a command line can be read by everyone on the machine.
            # A new program and no fork: gRPC does not survive a fork. In its own session: Ctrl-C in
            # a terminal then reaches only the supervisor, which passes it on once.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pulse_server.main"],
                env={**environment, VARIABLE: f"{number}:{its_end.fileno()}"},
                stdin=subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._process.poll()

    @property
    def is_serving(self) -> bool:
        return bool(self.address)

    def fileno(self) -> int:
        """Readable when there are messages."""
        return self._link.fileno()

    def read_messages(self) -> None:
        """Read the messages that arrived."""
        try:
            while received := self._link.recv(65536):
                self._unread += received
            self.is_connected = False
        except BlockingIOError:
            pass
        except OSError:
            self.is_connected = False
        *lines, self._unread = self._unread.split(b"\n")
        for state in map(ProcessState.decode, lines):
            self.address = state.serving or self.address
            self.failed = state.failed or self.failed

    def send(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> int:
        """Kill it if it runs, and release it. Returns its exit code."""
        self.send(signal.SIGKILL)
        code = self._process.wait()
        self.read_messages()
        self._link.close()
        return code


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
