"""Ties a server process to its supervisor: one socket, by which each notices the other's end.

The process reports that it serves, or why it cannot. The supervisor sends nothing: the socket is open as long
as the supervisor lives, and any end of it, SIGKILL included, closes the socket. No signal from the kernel is
needed for that, so it works on every system.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

log = logging.getLogger(__name__)

VARIABLE = "PULSE_SUPERVISED"


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process: the address that it serves, or the sentences why it does not."""

    serving: str = ""
    failed: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return json.dumps({"serving": self.serving, "failed": self.failed}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> ProcessState:
        fields = json.loads(line)
        return cls(fields["serving"], tuple(fields["failed"]))


class Lifeline:
    """The process's end of the socket."""

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self._link = link
        self._leave: Callable[[], object] = lambda: os._exit(1)
        self._patience = timedelta(0)

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str]) -> Lifeline | None:
        """The lifeline that the supervisor left in the environment, which is then gone from there."""
        value = environ.pop(VARIABLE, None)
        if value is None:
            return None
        number, _, descriptor = value.partition(":")
        try:
            lifeline = cls(int(number), socket.socket(fileno=int(descriptor)))
        except (ValueError, OSError):
            return None  # set by hand
        lifeline._link.set_inheritable(False)
        threading.Thread(target=lifeline._watch, name="lifeline", daemon=True).start()
        return lifeline

    def when_abandoned(self, leave: Callable[[], object], within: timedelta) -> None:
        """Call this, from a thread, when the supervisor is gone; end the process if it takes longer."""
        self._leave, self._patience = leave, within

    def report_serving(self, address: str) -> None:
        self._send(ProcessState(serving=address))

    def report_failed(self, sentences: Sequence[str]) -> None:
        self._send(ProcessState(failed=tuple(sentences)))

    def _send(self, state: ProcessState) -> None:
        with suppress(OSError):  # the supervisor is gone, which the watch deals with
            self._link.sendall(state.encode())

    def _watch(self) -> None:
        with suppress(OSError):
            while self._link.recv(4096):
                pass
        log.warning("supervisor_gone")
        with suppress(RuntimeError):  # the event loop is closed: it is leaving already
            self._leave()
        time.sleep(self._patience.total_seconds())
        log.warning("stopped_at_once", extra={"signal": "none"})
        os._exit(1)
