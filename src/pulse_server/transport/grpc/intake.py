"""Admits requests before their bytes are read, so that the bytes of all callers are bounded. ADR-0038

gRPC reads a message of up to MAX_MESSAGE_BYTES as a whole, and does not report its size before.
Only the size of the last message of the same method on the same connection is known:

* small, the usual case: the next is read at once. If it does not arrive within a moment it is slow: it takes
  a slot for large requests, or continues while all slow requests together use little memory.
* large: the next is read once there is a slot for it, which it keeps until it is answered.
* unknown, on a new connection: few are read at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc

from pulse_server.allocation import resident_bytes
from pulse_server.domain.errors import ResourceExhausted
from pulse_server.transport.grpc.boundary import NoRequest
from pulse_server.transport.grpc.parsing import Parser, Unparsed
from pulse_server.transport.grpc.quotas import Quota

# A message beyond this is large. Messages of the SDK have at most 2 MiB plus a payload.
LARGE_REQUEST_BYTES = 4 * 1024 * 1024
# Requests at a time: large ones that are read or answered, about 100 MB; requests that turned out
# large and wait; requests of new connections; small requests (docs/adr/0038).
LARGE_REQUESTS = 3
LARGE_REQUESTS_PARKED = 2
NEW_REQUESTS = 3
SMALL_REQUESTS = 64
# How long a request may take to arrive. It is looked at this often. After three looks it is slow
# and gives way to other requests, a large one after ten seconds.
REQUEST_PATIENCE = timedelta(seconds=60)
REQUEST_LOOK = timedelta(milliseconds=50)
REQUEST_SLOW_LOOKS = 3
REQUEST_FAIR_LOOKS = 200
# Memory for all slow requests without a slot.
SLOW_REQUESTS_BYTES = 64 * 1024 * 1024
# Connections whose last request sizes are remembered; about 200 bytes each.
CONNECTIONS_REMEMBERED = 10_000

Context = grpc.aio.ServicerContext[Any, Any]

_TOO_SLOW = "The request did not arrive in time, and others are waiting. Try again."
_MANY_LARGE = "The server is reading as many large requests as it can. Try again in a moment."


class _NotInTime(Exception):
    """The request did not arrive in time."""


class Intake:
    """The requests that are being read, and the large requests that are being answered."""

    def __init__(self) -> None:
        self.new = Quota(NEW_REQUESTS)
        self.small = Quota(SMALL_REQUESTS)
        self.large = Quota(LARGE_REQUESTS)
        self.slow = SlowRequests()
        self._parked = 0
        # By connection: the methods whose last message was large.
        self._connections: dict[str, set[str]] = {}

    @asynccontextmanager
    async def request(
        self, context: Context, caller: str, method: str, parser: Parser
    ) -> AsyncIterator[Unparsed]:
        """Yield the request unparsed. One that is large once it is parsed counts as large.

        The request keeps its slot while the block runs. Raises ResourceExhausted if it is not admitted, or
        does not arrive.
        """
        connection = context.peer()
        reading = Reading(self, self._quota_of(connection, method), caller)
        await reading.quota.enter(caller)
        try:
            data = await reading.read(context)
            unparsed = parser(data)
            del data
            is_large = await unparsed.weigh() > LARGE_REQUEST_BYTES
            self._remember(connection, method, is_large=is_large)
            if is_large:
                await self._wait_for_large_slot(reading)
            else:
                reading.leave()
            yield unparsed
        except _NotInTime:
            self._remember(connection, method, is_large=True)
            raise ResourceExhausted(_TOO_SLOW) from None
        finally:
            reading.leave()

    async def _wait_for_large_slot(self, reading: Reading) -> None:
        """Take a slot for a request that turned out to be large. It is already in memory."""
        if reading.move_to_large():
            return
        if self._parked >= LARGE_REQUESTS_PARKED:
            raise ResourceExhausted(_MANY_LARGE)
        self._parked += 1
        try:
            await reading.wait_for_large_slot()
        finally:
            self._parked -= 1

    def _quota_of(self, connection: str, method: str) -> Quota:
        large = self._connections.get(connection)
        if large is None:
            return self.new
        return self.large if method in large else self.small

    def _remember(self, connection: str, method: str, *, is_large: bool) -> None:
        large = self._connections.get(connection)
        if large is None:
            large = self._connections[connection] = set()
            if len(self._connections) > CONNECTIONS_REMEMBERED:
                del self._connections[next(iter(self._connections))]
        if is_large:
            large.add(method)
        elif large:
            large.discard(method)


class Reading:
    """A request that is being read, and its slot."""

    def __init__(self, intake: Intake, quota: Quota, caller: str) -> None:
        self.quota = quota
        self._intake = intake
        self._caller = caller
        self._has_slot = True
        self._checks = 0

    async def read(self, context: Context) -> bytes:
        """Return the request. Raises _NotInTime if it did not arrive in time."""
        loop = asyncio.get_running_loop()
        self._next_check = loop.call_later(REQUEST_LOOK.total_seconds(), self._check, loop)
        try:
            async with asyncio.timeout(REQUEST_PATIENCE.total_seconds()) as self._patience:
                data = await context.read()
        except TimeoutError:
            raise _NotInTime from None
        finally:
            self._next_check.cancel()
            self._intake.slow.discard(self)
        if data is grpc.aio.EOF:
            raise NoRequest
        return data  # type: ignore[no-any-return]

    def move_to_large(self) -> bool:
        """Exchange the slot for one of the large requests. Returns False if none is free."""
        large = self._intake.large
        if self.quota is not large:
            if not large.try_enter(self._caller):
                return False
            self.leave()
            self.quota, self._has_slot = large, True
        return True

    async def wait_for_large_slot(self) -> None:
        self.leave()
        await self._intake.large.enter(self._caller)
        self.quota, self._has_slot = self._intake.large, True

    def leave(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self.quota.leave(self._caller)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check a request that has not arrived. Several checks, so that a late event loop does not count."""
        self._checks += 1
        if self._checks >= REQUEST_SLOW_LOOKS:
            self._intake.slow.add(self)
            if self.move_to_large():
                is_over = self._checks >= REQUEST_FAIR_LOOKS and self.quota.is_wanted
            elif self.quota is self._intake.new:
                is_over = self.quota.is_wanted
            else:
                is_over = self._intake.slow.use_much_memory
            if is_over:
                self._patience.reschedule(loop.time())
                return
        self._next_check = loop.call_later(REQUEST_LOOK.total_seconds(), self._check, loop)


class SlowRequests:
    """The slow requests, and the memory allocated since the first request became slow."""

    def __init__(self) -> None:
        self._readings: set[Reading] = set()
        self._before = 0

    def add(self, reading: Reading) -> None:
        if not self._readings:
            self._before = resident_bytes()
        self._readings.add(reading)

    def discard(self, reading: Reading) -> None:
        self._readings.discard(reading)

    @property
    def use_much_memory(self) -> bool:
        """Whether they may use much memory. Where memory cannot be measured, their number decides."""
        now = resident_bytes()
        if not now:
            return len(self._readings) > LARGE_REQUESTS
        return now - self._before > SLOW_REQUESTS_BYTES
