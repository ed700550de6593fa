"""Keys as they are pressed, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# The sequence that an arrow or function key sends, which may contain a q.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O.|.)?")


class Keys:
    """Pressed keys. Without a keyboard there are none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def are_available(self) -> bool:
        """True if there is a keyboard."""
        return self._descriptor is not None

    def pressed(self, seconds: float) -> str:
        """Wait for a key, at most this long. Returns what was pressed."""
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return ""
        typed = os.read(self._descriptor, 64)
        if not typed:  # the terminal has gone away
            raise KeyboardInterrupt
        return _SEQUENCE.sub("", typed.decode(errors="replace"))


@contextmanager
def listening() -> Iterator[Keys]:
    """Read keys for the length of a block, then restore the terminal."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
