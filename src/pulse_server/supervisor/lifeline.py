"""Ties a server process to its supervisor: one socket, by which each notices the other's end.

The process reports that it serves, or why it cannot. The supervisor sends nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from pulse.supervision.processes import Command, ProcessEnd, SupervisedProcess

log = logging.getLogger(__name__)


class ServerProcess(SupervisedProcess):
    """The supervisor's end. `failed` has the reasons why the process does not serve."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter, command: Command
    ) -> None:
        super().__init__(number, process, writer, command)
        self.serving = asyncio.Event()
        self.failed: list[str] = []
        self._serving_since: float | None = None

    @property
    def served_seconds(self) -> float:
        """The time since it began to serve; 0 if it does not."""
        return 0.0 if self._serving_since is None else time.monotonic() - self._serving_since

    def _received(self, word: str, rest: str) -> None:
        if word == "serving":
            self._serving_since = time.monotonic()
            self.serving.set()
        else:
            self.failed.append(rest)


class Lifeline(ProcessEnd):
    """The process's end."""

    _leave: Callable[[], object] = staticmethod(lambda: os._exit(1))
    _patience = timedelta(0)

    def when_abandoned(self, leave: Callable[[], object], within: timedelta) -> None:
        """Call this, from a thread, when the supervisor is gone; end the process if it takes longer."""
        self._leave, self._patience = leave, within

    def report_failed(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self.send(f"failed {sentence}")

    def _abandoned(self) -> None:
        log.warning("supervisor_gone")
        with suppress(RuntimeError):  # the event loop is closed: it is leaving already
            self._leave()
        time.sleep(self._patience.total_seconds())
        log.warning("stopped_at_once", extra={"signal": "none"})
        os._exit(1)
