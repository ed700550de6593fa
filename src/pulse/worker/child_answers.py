"""What a child process sends to its worker: outcomes, and the progress of its handler."""

from __future__ import annotations

import os
import socket
import threading
import time

from pulse import tuning
from pulse.handlers.progress import Reported
from pulse.outcomes import Cancelled
from pulse.worker.child_frames import Done, Progressed, send


class Answers:
    """Sends messages to the worker, whole, from several threads.

    Progress is sent by a thread of its own, so that a handler never waits, and a few times a second at the
    most. Nothing of an attempt is sent after its outcome.
    """

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        # Re-entrant: an error that is raised in the thread of the handler may keep it from being released.
        self._sending = threading.RLock()
        self._unsent: Reported | None = None
        self._is_new = threading.Event()
        self._thread: threading.Thread | None = None

    def progressed(self, reported: Reported) -> None:
        """Send the report soon, unless a newer one comes before. Returns at once."""
        self._unsent = reported
        self._is_new.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pulse-child-progress", daemon=True)
            self._thread.start()

    def done(self, done: Done) -> None:
        """Send the outcome, after the last progress."""
        while True:
            try:
                with self._sending:
                    self._send_progress()
                    send(self._worker, done)
                return
            except Cancelled:
                continue  # it came up after the handler had ended
            except OSError:
                os._exit(1)  # the worker is gone

    def _run(self) -> None:
        while True:
            self._is_new.wait()
            self._is_new.clear()
            try:
                with self._sending:
                    self._send_progress()
            except OSError:
                return  # the worker is gone: the thread that reads from it ends the process
            time.sleep(tuning.HOLD_LOOK_SECONDS)

    def _send_progress(self) -> None:
        reported, self._unsent = self._unsent, None
        if reported is not None:
            send(self._worker, Progressed(reported))
