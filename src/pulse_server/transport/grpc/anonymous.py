"""Bounds the requests and streams of anonymous callers, which use the health service. ADR-0019"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc

from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import Budget
from pulse_server.transport.grpc.boundary import abort

# Requests read at a time: 16 MiB at the worst, if each has the largest size. And the time for one to arrive;
# it has a few bytes.
ANONYMOUS_REQUESTS = 4
ANONYMOUS_REQUEST_TIMEOUT = timedelta(seconds=1)
# Streams of Health.Watch, 24 kB each: in total, and from one address.
ANONYMOUS_STREAMS = 1000
ANONYMOUS_STREAMS_PER_ADDRESS = 100
# Refusals within this time are logged once.
REFUSALS_LOG_INTERVAL = timedelta(minutes=1)

log = logging.getLogger(__name__)

_TOO_MANY = "Too many streams without a user are open. Use Check, or try again later."
_TOO_SLOW = "The request did not arrive in time. Send it at once."


class AnonymousRequests:
    """Reads requests, few at a time and each within a time limit.

    gRPC reads up to MAX_MESSAGE_BYTES before a request can be checked, and waits without limit for one that
    does not end.
    """

    def __init__(self) -> None:
        self._reading: dict[asyncio.Task[Any], None] = {}

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return the request of the call. Aborts the call if it does not arrive."""
        reading: asyncio.Task[Any] = asyncio.ensure_future(context.read())
        self._reading[reading] = None
        self._cancel_oldest()
        try:
            await asyncio.wait({reading}, timeout=ANONYMOUS_REQUEST_TIMEOUT.total_seconds())
        finally:
            self._reading.pop(reading, None)
            reading.cancel()
        if not reading.done() or reading.cancelled():
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_SLOW)
        request = reading.result()
        if request is grpc.aio.EOF:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a request.")
        return request

    def _cancel_oldest(self) -> None:
        # A healthy caller has sent its request before this many later requests arrive.
        if len(self._reading) > ANONYMOUS_REQUESTS:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.cancel()


class AnonymousStreams:
    """The open streams, bounded in total and per address."""

    def __init__(self) -> None:
        self._open = Budget(ANONYMOUS_STREAMS, of_one=ANONYMOUS_STREAMS_PER_ADDRESS, refusal=_TOO_MANY)
        self._logged_at = -math.inf

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a stream while the block runs. Raises ResourceExhausted if there are too many."""
        if not self._open.has_room(address):
            self._log(address)
        with self._open.taken(address):
            yield

    def _log(self, address: str) -> None:
        now = lease_clock()
        if now - self._logged_at >= REFUSALS_LOG_INTERVAL.total_seconds():
            log.warning(
                "streams_without_user_refused",
                extra={"address": address, "open": self._open.total, "of_address": self._open.of(address)},
            )
        self._logged_at = now
