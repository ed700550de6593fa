"""`pulse worker` with processes below it: its log, and whether one of them is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.command_line import CommandLine

PATIENCE_SECONDS = 30


class Running:
    """A command that runs, and its log."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until the log has this so many times. Returns the first groups."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := re.findall(pattern, self.log)) < count:
            assert time.monotonic() < deadline, f"{pattern!r} {len(found)} times in:\n{self.log}"
            time.sleep(0.05)
        return found

    def pids(self, count: int) -> list[int]:
        """Wait until so many worker processes were started and are connected. Returns their process ids."""
        self.wait_for("Connected to pulsed", count)
        return [int(pid) for pid in self.wait_for(r"\(pid (\d+)\) has started", count)]

    def ended(self) -> int:
        """Wait until this process and all below it have ended: each of them holds standard output open."""
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode


@contextmanager
def running(
    pulse: CommandLine, *arguments: str, cwd: Path, module: str = "pulse_cli", **variables: str
) -> Iterator[Running]:
    """Start a command in a process group of its own. It and the group are killed at the end of the block."""
    log = cwd / "log.txt"
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=pulse.environment(variables),
            cwd=cwd,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,
        ) as process,
    ):
        try:
            yield Running(process, log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
