"""Reads what callers send of whom nothing is known: a few of them at a time, and not for long."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pulse_server import tuning
from pulse_server.transport.grpc.boundary import abort

_TOO_SLOW = "The request did not arrive in time. It has a few bytes; send them at once."


class StrangersRequests:
    """gRPC takes in a message of up to MAX_MESSAGE_BYTES before it can be judged, and one that does not end
    for as long as its caller likes. So too many at once, or one that takes too long, are not waited for.
    """

    def __init__(self) -> None:
        self._reading: dict[asyncio.Task[Any], None] = {}

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """The request of a call that takes a stream. Aborts the call if it does not come."""
        reading: asyncio.Task[Any] = asyncio.ensure_future(context.read())
        self._reading[reading] = None
        self._make_room()
        try:
            await asyncio.wait({reading}, timeout=tuning.STRANGER_PATIENCE.total_seconds())
        finally:
            self._reading.pop(reading, None)
            reading.cancel()
        if not reading.done() or reading.cancelled():
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_SLOW)
        request = reading.result()
        if request is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a request.")
        return request

    def _make_room(self) -> None:
        # The oldest goes: whoever is well has been read by the time that so many others have come.
        if len(self._reading) > tuning.STRANGERS_READ:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.cancel()
