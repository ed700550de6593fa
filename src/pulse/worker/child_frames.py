"""The messages between a worker and a child process that runs handlers, and how they travel on a socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from pulse.handlers.progress import Reported
from pulse.outcomes import Failed, Outcome, Snoozed, Succeeded, Suspended

# A mark, and the length of the message. A handler may write to any file descriptor of its process: without
# the mark its bytes would be taken for a length, and waited for. Neither UTF-8 nor msgpack uses 0xc1.
_HEAD = struct.Struct("!4sI")
_MARK = b"\xc1\xffPM"


class Load(msgspec.Struct, tag=True):
    """To the child: where the client is, and what else to import."""

    module: str
    path: str
    attribute: str
    imports: list[str]
    log_level: int
    process_name: str
    """Of the worker, as its log records have it: `worker-2` in one of several processes."""


class Run(msgspec.Struct, tag=True):
    """To the child: run an attempt. The assignment is a JobAssignment, as bytes."""

    assignment: bytes
    worker_id: str
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
    """What the handler returned, encoded."""

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
    """From the child: what the handler has reported last."""

    reported: Reported


class RanInProcess(Exception):
    """The outcome that a child process reports. It has logged the error."""

    def __init__(self, outcome: Failed | Snoozed | Suspended | None) -> None:
        """None stands for a handler that was interrupted."""
        super().__init__(outcome.error if isinstance(outcome, Failed) else "")
        self.outcome = outcome


Message = Load | Run | Stop | Loaded | Progressed | Done
_decoder = msgspec.msgpack.Decoder(Message)


def send(to: socket.socket, message: Any) -> None:
    """Send a message in one call."""
    data = msgspec.msgpack.encode(message)
    to.sendall(_HEAD.pack(_MARK, len(data)) + data)


def receive(stream: socket.socket, is_there: Callable[[], bool] = lambda: True) -> Message | None:
    """Wait for the next message. Returns None at the end of the stream, or if this is no message.

    `is_there` is called before each read: it waits for bytes, and returns False if the sender is gone.
    """
    head = _exactly(stream, _HEAD.size, is_there)
    if head is None:
        return None
    mark, size = _HEAD.unpack(head)
    data = _exactly(stream, size, is_there) if mark == _MARK else None
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def _exactly(stream: socket.socket, size: int, is_there: Callable[[], bool]) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        if not is_there():
            return None
        try:
            part = stream.recv(min(size - len(parts), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
