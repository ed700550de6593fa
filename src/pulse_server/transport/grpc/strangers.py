"""Bounds what callers take of whom nothing is known: their requests that are read, and their streams."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from pulse_server import tuning
from pulse_server.clock import awake_or_not
from pulse_server.domain.errors import ResourceExhausted
from pulse_server.transport.grpc.boundary import abort

log = logging.getLogger(__name__)

_TOO_MANY = "Too many streams without a user are open here. Ask with Check, or try again later."
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


class StrangersStreams:
    """The streams of callers of whom nothing is known: so many in all, and from one address."""

    def __init__(self, clock: Callable[[], float] = awake_or_not) -> None:
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._logged_at = -math.inf

    @contextmanager
    def entered(self, address: str) -> Iterator[None]:
        """Count a stream for as long as the block lasts. ResourceExhausted if there are too many."""
        if (
            self._open.total() >= tuning.STRANGER_STREAMS
            or self._open[address] >= tuning.STRANGER_STREAMS_PER_ADDRESS
        ):
            self._log(address)
            raise ResourceExhausted(_TOO_MANY)
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _log(self, address: str) -> None:
        now = self._clock()
        if now - self._logged_at >= tuning.STRANGERS_LOGGED.total_seconds():
            log.warning(
                "streams_without_user_refused",
                extra={"address": address, "open": self._open.total(), "of_address": self._open[address]},
            )
        self._logged_at = now
