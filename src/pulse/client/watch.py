"""Changes of jobs as they happen: one stream, opened again whenever it ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import datetime

import grpc.aio

from pulse.messages import Reader
from pulse.models.jobs import JobStatus
from pulse.models.progress import Progress
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.streams import Patience, reconnecting_stream


@dataclass(frozen=True, slots=True)
class Transition:
    """One committed change of a job's status, or of its progress."""

    job_id: str
    topic: str
    status: JobStatus
    attempt: int
    worker_id: str | None
    error: str | None
    """The first line of the error."""
    at: datetime | None
    progress: Progress | None = None
    """Set with `watch(progress=True)`: the job runs as before, and its handler has reported this."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """The changes since the previous item."""

    transitions: tuple[Transition, ...]
    missed: int
    """The number of further changes, of any topic, that were dropped."""
    interrupted: bool = False
    """True after the connection was lost: changes in between are missing."""


_transitions = Reader(Transitions, interrupted=lambda response: False)


class Watch:
    """Watches jobs. `timeout_seconds` bounds the wait for the first welcome only."""

    def __init__(self, connection: Connection, request: pb.WatchJobsRequest, timeout_seconds: float) -> None:
        self._connection = connection
        self._request = request
        self._patience = Patience(connection, timeout_seconds)
        self._was_welcomed = False
        self._is_new = True

    async def transitions(self) -> AsyncGenerator[Transitions, None]:
        """Yield the changes until closed. The first of each connection is empty.

        Raises a PulseError if no server answers at first, and later if one refuses this caller for good.
        """
        patience = self._patience
        stream = reconnecting_stream(
            self._connection, self._open, patience.lost, welcome_seconds=patience.welcome_seconds
        )
        async with contextlib.aclosing(stream):
            async for message in stream:
                is_interrupted = self._is_new and self._was_welcomed
                self._is_new, self._was_welcomed = False, True
                patience.renew()
                yield replace(_transitions(message), interrupted=is_interrupted)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.WatchJobsRequest, pb.WatchJobsResponse]:
        self._is_new = True
        return self._connection.open_stream(self._connection.stub.WatchJobs, self._request)
