"""A lasting line to the server for a call that is made all the time: one stream instead of a call each.

A message on an open stream costs about half of a call, on both sides. Who calls now and then keeps no stream
open: calls go alone until they follow each other closely, and a line that falls silent is closed (ADR-0031).
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
from pulse.wire.failures import SAID_BY_PULSED
from pulse.wire.line_streams import LineStream

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

Response = TypeVar("Response")

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Line(Generic[Response]):
    """Makes one kind of call, over a stream while it is made often. Use it within one event loop.

    `method` is the call and `stream` the RPC that carries many of them. Only for calls that may be repeated:
    one that was sent over a line which then ended is asked again.
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
        """Return the answer to the message's request, asked once. Raises what gRPC raises for a call, and
        ClientClosed."""
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
        """Close the stream. Calls that are under way raise ClientClosed."""
        self._is_closed = True
        if self._streams:
            await asyncio.gather(*(stream.close() for stream in self._streams))
            # gRPC still delivers their ends to this loop, which may be closed next.
            await asyncio.sleep(tuning.SETTLE_SECONDS)

    def _open_if_busy(self, now: float) -> LineStream | None:
        """Open the stream, if calls follow each other closely and the last one went well."""
        if now - self._answered_at > tuning.LINE_OPENS_WITHIN_SECONDS or now < self._rests_until:
            return None
        call = self._open(metadata=self._connection.endpoint.metadata)
        stream = self._current = LineStream(call, left=self._leave, ended=self._streams.discard)
        self._streams.add(stream)
        return stream

    def _leave(self, stream: LineStream) -> None:
        """Use the stream no more."""
        if self._current is stream:
            self._current = None
            if not stream.has_answered:
                # A server that is older, or something on the way that carries no streams. Calls get through.
                self._rests_until = asyncio.get_running_loop().time() + self._rest.next_seconds()


def _refused(refusal: pb.Refusal) -> grpc.aio.AioRpcError:
    """Return what the call would have raised if it had been made alone."""
    return grpc.aio.AioRpcError(
        _CODES.get(refusal.code, grpc.StatusCode.UNKNOWN),
        grpc.aio.Metadata(),
        grpc.aio.Metadata((SAID_BY_PULSED, "1")),
        details=refusal.message,
    )
