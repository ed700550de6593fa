"""Keys as they are pressed, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# What an arrow or a function key sends, which may well have a q in it.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O.|.)?")


class Keys:
    """What was pressed. Where there is no keyboard, nothing ever is."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def are_heard(self) -> bool:
        """True if there is a keyboard."""
        return self._descriptor is not None

    def pressed(self, seconds: float) -> str:
        """Return what is pressed within this time, as soon as something is."""
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
    """Hear keys for the length of a block. The terminal is as it was afterwards."""
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
