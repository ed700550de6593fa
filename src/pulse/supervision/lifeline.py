"""The lifeline of a worker process: a socket to its supervisor.

The supervisor sends `stop`, optionally with the seconds that it waits, and `hurry`. A closed socket
means that it is gone. The process sends its state: `running`, `connected` to pulsed, `ready` once
pulsed has accepted its declarations, `due`, and `drained` when no handler runs any more. Requests
are levels, not counts: a signal to the whole process group and the supervisor's own request
together mean one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from pulse.supervision.ending import end_at_once
from pulse.supervision.processes import ProcessEnd

# The time of a stop beyond the drain: cancellations, releases, and reports for as long as a lease.
STOP_GRACE_SECONDS = 60.0
# The same after a second signal.
HURRY_GRACE_SECONDS = 15.0


class Stoppable(Protocol):
    """The methods of a worker that a lifeline needs."""

    def drain(self, within_seconds: float | None = None) -> None:
        """Take no more jobs, let handlers finish, and return. Idempotent.

        `within_seconds` shortens the time that handlers have.
        """

    def hurry(self) -> None:
        """Drain without waiting for handlers. Idempotent."""


class Lifeline(ProcessEnd):
    """The worker process's end."""

    def __init__(self, descriptor: int, number: int) -> None:
        self._lock = threading.Lock()
        self._workers: dict[Stoppable, asyncio.AbstractEventLoop] = {}
        self._drain_seconds = 0.0
        self.has_run = False
        """True once a worker has run in this process."""
        super().__init__(descriptor, number)

    @contextlib.contextmanager
    def attached(self, worker: Stoppable, drain_seconds: float) -> Iterator[None]:
        """Stop the worker when the supervisor asks for it, for the length of a block."""
        with self._lock:
            self.has_run = True
            self._drain_seconds = max(self._drain_seconds, drain_seconds)
            self._workers[worker] = asyncio.get_running_loop()
        self.send(f"running {drain_seconds}")
        try:
            yield
        finally:
            with self._lock:
                del self._workers[worker]

    def due(self, reason: str) -> bool:
        """Ask to be replaced. The supervisor answers with `stop` when it is this process's turn.

        Returns False if it replaces none: the only process of a reloader has no number.
        """
        if self.number:
            self.send(f"due {reason}")
        return bool(self.number)

    def _received(self, line: str) -> None:
        word, _, seconds = line.partition(" ")
        self._request(hurry=word == "hurry", within_seconds=float(seconds) if seconds else None)

    def _abandoned(self) -> None:
        self._request(hurry=False)
        time.sleep(self._drain_seconds + STOP_GRACE_SECONDS)
        # A handler that never returns must not outlive the supervisor.
        end_at_once(1)

    def _request(self, *, hurry: bool, within_seconds: float | None = None) -> None:
        with self._lock:
            if not self.has_run:
                # Nothing runs yet: the application is being imported.
                os.kill(os.getpid(), signal.SIGTERM)
            for worker, loop in self._workers.items():
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    if hurry:
                        loop.call_soon_threadsafe(worker.hurry)
                    else:
                        loop.call_soon_threadsafe(worker.drain, within_seconds)


class Unsupervised:
    """The same for a process that no supervisor started."""

    number = 0

    def attached(self, worker: Stoppable, drain_seconds: float) -> contextlib.AbstractContextManager[None]:
        """Do nothing for the length of a block."""
        return contextlib.nullcontext()

    def send(self, line: str) -> None:
        """Report to no supervisor."""

    def due(self, reason: str) -> bool:
        """Return False: this process is not replaced."""
        return False


_held: Lifeline | None = None


def hold() -> Lifeline | None:
    """Take the lifeline that the supervisor passed to this process, if there is one.

    Call it before the application is imported: from then on the death of the supervisor ends the process.
    """
    global _held
    if _held is None and (taken := Lifeline.taken_from(os.environ)) is not None:
        _held = taken
        if taken.number:
            _name_process(taken.number)
        # With a SIGHUP the supervisor replaces its processes; a whole group may receive it.
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGHUP, lambda *_: None)
    return _held


def held() -> Lifeline | None:
    """Return the lifeline of this process, if a supervisor started it."""
    return _held


def of_this_process() -> Lifeline | Unsupervised:
    """Return the lifeline of this process, or a lifeline that does nothing."""
    return _held or Unsupervised()


def _name_process(number: int) -> None:
    """Put the number on every log record, as `processName`."""
    import multiprocessing

    multiprocessing.current_process().name = f"worker-{number}"
