"""The wall clock of the Postgres of a run, which can be set while it runs. Needs a C compiler.

See shifted_clock.c. Without a compiler, or where Postgres cannot read the file, the clock stays as it is.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).with_name("shifted_clock.c")
_NANOSECONDS = 10**9


class DatabaseClock:
    """How far ahead the clock is: a number in a file."""

    def __init__(self, directory: Path) -> None:
        self._library, self._file = directory / "shifted_clock.so", directory / "clock"
        self._ahead = 0

    def prepare(self) -> None:
        """Compile what is preloaded, if there is a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is not None:
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE, "-ldl"]
            subprocess.run(command, capture_output=True, check=False)
        self._file.write_bytes(struct.pack("q", 0))

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """A Postgres that is started in this block has the clock.

        So may another process that is started meanwhile. It does not get the variable that names the file,
        and its clock is right.
        """
        if not self._library.exists():
            yield
            return
        os.environ.update(LD_PRELOAD=str(self._library), PULSE_TEST_CLOCK=str(self._file))
        try:
            yield
        finally:
            del os.environ["LD_PRELOAD"], os.environ["PULSE_TEST_CLOCK"]

    def step(self, seconds: float) -> None:
        """Set it ahead by this much, or back if it is negative."""
        self._ahead += round(seconds * _NANOSECONDS)
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", self._ahead))
