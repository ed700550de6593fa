"""Changes of jobs as they happen: one stream, opened again whenever it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator

import grpc.aio

from pulse import tuning
from pulse.models.transitions import Transitions, transitions
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.failures import is_retryable
from pulse.wire.streams import StreamError, reconnecting_stream


class Watch:
    """Watches jobs. `timeout_seconds` bounds the wait for the first welcome only."""

    def __init__(self, connection: Connection, request: pb.WatchJobsRequest, timeout_seconds: float) -> None:
        self._connection = connection
        self._request = request
        self._deadline = time.monotonic() + timeout_seconds
        self._was_welcomed = False
        self._is_new = True

    async def transitions(self) -> AsyncGenerator[Transitions, None]:
        """Yield the changes until closed. The first of each connection is empty.

        Raises a PulseError if no server answers at first, and later if one refuses this caller for good.
        """
        stream = reconnecting_stream(
            self._connection, self._open, self._lost, welcome_seconds=self._welcome_seconds
        )
        async with contextlib.aclosing(stream):
            async for message in stream:
                is_interrupted = self._is_new and self._was_welcomed
                self._is_new, self._was_welcomed = False, True
                yield transitions(message, interrupted=is_interrupted)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.WatchJobsRequest, pb.WatchJobsResponse]:
        self._is_new = True
        return self._connection.open_stream(self._connection.stub.WatchJobs, self._request)

    def _welcome_seconds(self) -> float:
        if self._was_welcomed:
            return tuning.WELCOME_TIMEOUT_SECONDS
        return min(tuning.WELCOME_TIMEOUT_SECONDS, max(self._deadline - time.monotonic(), 0.001))

    async def _lost(self, error: StreamError, wait_seconds: float) -> None:
        """Raise what ends the watch: a refusal, or no welcome until the deadline."""
        if isinstance(error, grpc.aio.AioRpcError) and not is_retryable(error):
            raise await self._connection.explain(error)
        if self._was_welcomed:
            return
        if isinstance(error, grpc.aio.AioRpcError):
            reason = await self._connection.explain(error)
        else:
            reason = self._connection.out_of_time()
        if time.monotonic() + wait_seconds >= self._deadline:
            raise reason
