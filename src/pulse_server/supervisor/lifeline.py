"""Ties a server process to its supervisor: one socket, by which each notices the other's end.

The process reports that it serves, or why it cannot. The supervisor sends nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pulse.supervision.processes import ProcessEnd

log = logging.getLogger(__name__)

VARIABLE = "PULSE_SUPERVISED"


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process: the address that it serves, or the sentences why it does not."""

    serving: str = ""
    failed: tuple[str, ...] = ()

    def encode(self) -> str:
        return json.dumps({"serving": self.serving, "failed": self.failed})

    @classmethod
    def decode(cls, line: bytes) -> ProcessState:
        fields = json.loads(line)
        return cls(fields["serving"], tuple(fields["failed"]))


class Lifeline(ProcessEnd):
    """The process's end of the socket."""

    _leave: Callable[[], object] = staticmethod(lambda: os._exit(1))
    _patience = timedelta(0)

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str]) -> Lifeline | None:
        """The lifeline that the supervisor left in the environment, which is then gone from there."""
        value = environ.pop(VARIABLE, None)
        if value is None:
            return None
        number, _, descriptor = value.partition(":")
        try:
            return cls(int(descriptor), int(number))
        except (ValueError, OSError):
            return None  # set by hand

    def when_abandoned(self, leave: Callable[[], object], within: timedelta) -> None:
        """Call this, from a thread, when the supervisor is gone; end the process if it takes longer."""
        self._leave, self._patience = leave, within

    def report_serving(self, address: str) -> None:
        self.send(ProcessState(serving=address).encode())

    def report_failed(self, sentences: Sequence[str]) -> None:
        self.send(ProcessState(failed=tuple(sentences)).encode())

    def _abandoned(self) -> None:
        log.warning("supervisor_gone")
        with suppress(RuntimeError):  # the event loop is closed: it is leaving already
            self._leave()
        time.sleep(self._patience.total_seconds())
        log.warning("stopped_at_once", extra={"signal": "none"})
        os._exit(1)
