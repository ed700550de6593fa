"""A real terminal with a program at it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect.fdpexpect

PATIENCE_SECONDS = 30
_IMPATIENCE_SECONDS = 5
_CTRL_C = "\x03"

# pexpect's own spawn forks and runs Python in the child; gRPC, once it was used here, does not survive that.
# So another program is started, which takes the terminal for its own and becomes the one to be tested.
_TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A program at a terminal. `expect` waits for what it prints, `sendline` types."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path | None,
        columns: int,
        lines: int,
    ) -> None:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_THE_TERMINAL, *command],
            env=dict(environment),
            cwd=directory,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen = pexpect.fdpexpect.fdspawn(ours, timeout=PATIENCE_SECONDS, encoding="utf-8")

    @property
    def before(self) -> str:
        """What came before that which was waited for last."""
        return str(self._screen.before or "")

    @property
    def after(self) -> str:
        """What was waited for last, as it came."""
        return str(self._screen.after)

    def expect(self, pattern: Any) -> None:
        """Read on until the program prints this."""
        self._screen.expect(pattern)

    def sendline(self, line: str) -> None:
        """Type a line."""
        self._screen.sendline(line)

    def press(self, key: str) -> None:
        """Press a key."""
        self._screen.send(key)

    def sendintr(self) -> None:
        """Type Ctrl-C."""
        self._screen.send(_CTRL_C)

    def interrupt_question(self) -> None:
        """Type Ctrl-C until the program ends: Python overlooks one that comes just before it waits for a
        line, so it may take several."""
        for _ in range(PATIENCE_SECONDS // _IMPATIENCE_SECONDS):
            self.sendintr()
            if self._screen.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=_IMPATIENCE_SECONDS) == 0:
                return
        raise AssertionError(f"it still runs after Ctrl-C: {self.before}")

    def close(self) -> None:
        """Close the terminal, and kill the program if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # with what it has started itself
        self.process.wait()
        self._screen.close()
