"""One server process, as its supervisor sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from pulse_server.supervisor.lifeline import VARIABLE, Word


class ServerProcess:
    """Runs as soon as it is made, and ends by itself when this process does."""

    def __init__(self, environment: Mapping[str, str], number: int) -> None:
        self.address = ""
        self.failed: tuple[str, ...] = ()
        self.may_speak = True
        self._heard = b""
        self._link, its_end = socket.socketpair()
        self._link.setblocking(False)
        with its_end:
            # Secrets travel in the environment: a command line can be read by everyone on the machine.
            # Started anew and not forked, since gRPC does not survive a fork. In a session of its own, so
            # that Ctrl-C in a terminal reaches the supervisor alone, which passes it on once.
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
        """Readable when there is something to hear."""
        return self._link.fileno()

    def hear(self) -> None:
        """Take in what it has said since."""
        try:
            while told := self._link.recv(65536):
                self._heard += told
            self.may_speak = False
        except BlockingIOError:
            pass
        except OSError:
            self.may_speak = False
        *lines, self._heard = self._heard.split(b"\n")
        for word in map(Word.decode, lines):
            self.address = word.serving or self.address
            self.failed = word.failed or self.failed

    def send(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> int:
        """Kill it if it runs, and forget it. Returns its exit code."""
        self.send(signal.SIGKILL)
        code = self._process.wait()
        self.hear()
        self._link.close()
        return code


def ending(exit_code: int) -> str:
    """How a process with this exit code ended, in words."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
