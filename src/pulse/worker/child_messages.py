"""The messages between a worker and a child process that runs handlers."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from pulse import tuning
from pulse.jobs.models import Reported
from pulse.outcomes import Cancelled, Failed, Outcome, Snoozed, Succeeded, Suspended


class Load(msgspec.Struct, tag=True):
    """To the child: where the client is, and what else to import."""

    module: str
    path: str
    attribute: str
    imports: list[str]
    log_level: int
    process_name: str
    """Of the worker, as its log records have it: `worker-2` in one of several processes."""
    logs_json: bool = False
    """Whether the worker logs JSON."""


class Run(msgspec.Struct, tag=True):
    """To the child: run an attempt. The assignment is a JobAssignment, as bytes."""

    assignment: bytes
    worker_id: str
    completion_key: bytes
    """A CompletionKey, as bytes."""
    max_step_bytes: int
    max_result_bytes: int
    """0: the worker drops results."""


class Stop(msgspec.Struct, tag=True):
    """To the child: interrupt the attempt."""

    limit_seconds: float
    is_timed_out: bool


class Loaded(msgspec.Struct, tag=True):
    """From the child: the topics that have a handler there, or why there are none."""

    topics: list[str]
    problem: str = ""


class Done(msgspec.Struct, tag=True):
    """From the child: the outcome of the attempt. Neither is set for a success, or if it was interrupted."""

    failed: Failed | None = None
    snoozed: Snoozed | None = None
    suspended: Suspended | None = None
    is_interrupted: bool = False
    result: bytes | None = None
    """The encoded result of the handler."""

    @classmethod
    def of(cls, outcome: Outcome | None) -> Done:
        match outcome:
            case None:
                return cls(is_interrupted=True)
            case Failed():
                return cls(failed=outcome)
            case Snoozed():
                return cls(snoozed=outcome)
            case Suspended():
                return cls(suspended=outcome)
            case Succeeded():
                return cls(result=outcome.result)


class Progressed(msgspec.Struct, tag=True):
    """From the child: the handler's last progress report."""

    reported: Reported


class Completes(msgspec.Struct, tag=True):
    """From the child: the handler calls `ctx.complete`."""


class RanInProcess(Exception):
    """The outcome that a child process reports. It has logged the error."""

    def __init__(self, outcome: Failed | Snoozed | Suspended | None) -> None:
        """None: the handler was interrupted."""
        super().__init__(outcome.error if isinstance(outcome, Failed) else "")
        self.outcome = outcome


Message = Load | Run | Stop | Loaded | Progressed | Completes | Done
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def send(to: Connection, message: Any) -> None:
    """Send a message in one call."""
    to.send_bytes(msgspec.msgpack.encode(message))


def receive(stream: Connection) -> Message | None:
    """Wait for the next message. Returns None at the end of the stream."""
    try:
        return _decoder.decode(stream.recv_bytes())
    except (EOFError, OSError):
        return None


class Answers:
    """Sends messages to the worker, whole, from several threads.

    A separate thread sends progress, at most a few times a second, so that a handler never waits.
    Nothing of an attempt is sent after its outcome.
    """

    def __init__(self, worker: Connection) -> None:
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

    def completes(self) -> None:
        """Report that the handler calls `ctx.complete`, before it does."""
        with self._sending:
            send(self._worker, Completes())

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
