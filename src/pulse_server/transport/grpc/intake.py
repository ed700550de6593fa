"""Reads requests, so that the bytes of all that are read or answered are bounded. ADR-0038

gRPC reads a message of up to MAX_MESSAGE_BYTES as a whole, does not report its size before, and waits without
limit for one that does not end. Of a message that is not read yet it takes in 64 KiB. So a request waits for
room for the largest one, and keeps what it takes until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc

from pulse_server.base import tuning
from pulse_server.base.errors import ResourceExhausted
from pulse_server.transport.grpc.boundary import NoRequest
from pulse_server.transport.grpc.parsing import Parser, Unparsed
from pulse_server.transport.grpc.quotas import Quota

# Requests that are read or answered, of all callers and of one method of one caller: a flood of large submits
# delays no reports and heartbeats. Several floods leave the spare bytes to methods that have less than one
# large request. An answered request and its jobs take about two copies.
REQUESTS_BYTES = 96 * 1024 * 1024
REQUESTS_BYTES_OF_ONE = 32 * 1024 * 1024
REQUESTS_SPARE_BYTES = 24 * 1024 * 1024
# How long a request may take to arrive. It is looked at this often. After three looks it is slow, and gives
# way to a request that waits for its room.
REQUEST_PATIENCE = timedelta(seconds=60)
REQUEST_LOOK = timedelta(milliseconds=50)
REQUEST_SLOW_LOOKS = 3

_TOO_SLOW = "The request did not arrive in time, and others are waiting. Try again."


class Intake:
    """The requests that are read or answered."""

    def __init__(self) -> None:
        self._room = Quota(
            REQUESTS_BYTES,
            of_one=REQUESTS_BYTES_OF_ONE,
            each=tuning.MAX_MESSAGE_BYTES,
            spare=REQUESTS_SPARE_BYTES,
        )

    @asynccontextmanager
    async def request(
        self, context: grpc.aio.ServicerContext[Any, Any], caller: str, method: str, parser: Parser
    ) -> AsyncIterator[Unparsed]:
        """Yield the request, weighed. It has its room while the block runs.

        Raises ResourceExhausted if it is not admitted, or does not arrive.
        """
        key = f"{caller} {method}"
        await self._room.enter(key)
        kept: int | None = None
        try:
            unparsed = parser(await _Reading(self._room, key).read(context))
            kept = self._room.keep(key, await unparsed.weigh())
            yield unparsed
        finally:
            self._room.leave(key, kept)


class _Reading:
    """A request that has not arrived yet."""

    def __init__(self, room: Quota, key: str) -> None:
        self._room = room
        self._key = key
        self._looks = 0

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(REQUEST_LOOK.total_seconds(), self._look, loop)
        try:
            async with asyncio.timeout(None) as self._patience:
                data = await context.read()
        except TimeoutError:
            raise ResourceExhausted(_TOO_SLOW) from None
        finally:
            self._next_look.cancel()
        if data is grpc.aio.EOF:
            raise NoRequest
        return data  # type: ignore[no-any-return]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # Several looks, so that a late event loop does not count.
        self._looks += 1
        is_slow = self._looks >= REQUEST_SLOW_LOOKS and self._room.is_wanted(self._key)
        if is_slow or self._looks * REQUEST_LOOK >= REQUEST_PATIENCE:
            self._patience.reschedule(loop.time())
        else:
            self._next_look = loop.call_later(REQUEST_LOOK.total_seconds(), self._look, loop)
