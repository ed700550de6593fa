"""A line: one stream that carries many calls of the same kind.

A message on an open stream costs about half of a call, on both sides. The stream opens when calls follow each
other closely and closes when it is idle, so that occasional callers keep none open (ADR-0031).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.wire.backoff import Backoff
from pulse.wire.connection import Connection
from pulse.wire.failures import FROM_PULSED
from pulse.wire.line_streams import LineStream

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

Response = TypeVar("Response")

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Line(Generic[Response]):
    """Makes one kind of call, over a stream while calls are frequent. Belongs to one event loop.

    `method` is the RPC and `stream` the RPC that carries many of them. Only for repeatable calls: a call is
    made again if its stream ended without an answer.
    """

    def __init__(self, connection: Connection, method: Any, stream: Any) -> None:
        self._connection = connection
        self._method = method
        self._open = stream
        self._current: LineStream | None = None
        self._streams: set[LineStream] = set()
        self._answered_at = -math.inf
        self._rest = Backoff(tuning.LINE_REST_FIRST_SECONDS, tuning.LINE_REST_LONGEST_SECONDS)
        self._rests_until = -math.inf
        self._is_closed = False

    async def call(self, message: Any, timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS) -> Response:
        """Return the answer to the request in the message. Tries once.

        Raises the errors of gRPC, and ClientClosed.
        """
        if self._is_closed or self._connection.is_closed:
            raise ClientClosed("The client was closed before the call.")
        now = asyncio.get_running_loop().time
        deadline = now() + min(timeout_seconds, tuning.TRY_TIMEOUT_SECONDS)
        stream = self._current or self._open_if_busy(now())
        if stream is not None and (answer := await stream.ask(message, deadline - now())) is not None:
            self._rest.reset()
            if answer.HasField("refusal"):
                raise _refused(answer.refusal)
            response: Response = answer.response
        else:
            remaining = max(deadline - now(), 0.001)
            response = await self._connection.try_once(self._method, message.request, remaining)
        self._answered_at = now()
        return response

    async def close(self) -> None:
        """Close the stream. Calls in flight raise ClientClosed."""
        self._is_closed = True
        if self._streams:
            await asyncio.gather(*(stream.close() for stream in self._streams))
            # gRPC still delivers the ends of the streams to this loop, which may be closed next.
            await asyncio.sleep(tuning.SETTLE_SECONDS)

    def _open_if_busy(self, now: float) -> LineStream | None:
        """Open the stream if calls follow each other closely and the last one succeeded."""
        if now - self._answered_at > tuning.LINE_OPENS_WITHIN_SECONDS or now < self._rests_until:
            return None
        call = self._open(metadata=self._connection.endpoint.metadata)
        stream = self._current = LineStream(call, left=self._leave, ended=self._streams.discard)
        self._streams.add(stream)
        return stream

    def _leave(self, stream: LineStream) -> None:
        """Stop using the stream."""
        if self._current is stream:
            self._current = None
            if not stream.has_answered:
                # An older server, or a proxy that does not carry streams. Single calls work.
                self._rests_until = asyncio.get_running_loop().time() + self._rest.next_seconds()


def _refused(refusal: pb.Refusal) -> grpc.aio.AioRpcError:
    """Return the error that the call would have raised without a line."""
    return grpc.aio.AioRpcError(
        _CODES.get(refusal.code, grpc.StatusCode.UNKNOWN),
        grpc.aio.Metadata(),
        grpc.aio.Metadata((FROM_PULSED, "1")),
        details=refusal.message,
    )
