"""Admits requests before their bytes are read, so that what callers send together stays bounded. ADR-0038

gRPC takes in a message of up to MAX_MESSAGE_BYTES once it was asked for, and says nothing of its size before
it is there. What is known is how the last message of the method was, on the same connection:

* small, as nearly always: the next is read at once. One that does not arrive within a moment is slow: it gets
  a slot among the large ones, or goes on for as long as the slow ones together take little memory.
* large: the next is read once there is a slot, which it has until it is answered.
* a connection that is new: few of them are read at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from pulse_server import tuning
from pulse_server.allocation import resident_bytes
from pulse_server.domain.errors import ResourceExhausted
from pulse_server.transport.grpc.boundary import NoRequest
from pulse_server.transport.grpc.quotas import Quota

Context = grpc.aio.ServicerContext[Any, Any]

_TOO_SLOW = "The request did not arrive in time, and others wait to be read. Try again."
_MANY_LARGE = "The server takes in as many large requests as it can. Try again in a moment."


class _NotInTime(Exception):
    pass


class Intake:
    """The requests that are being read, and the large ones that are being answered."""

    def __init__(self) -> None:
        self.new = Quota(tuning.NEW_REQUESTS)
        self.small = Quota(tuning.SMALL_REQUESTS)
        self.large = Quota(tuning.LARGE_REQUESTS)
        self.slow = SlowRequests()
        self._parked = 0
        # The methods of which the last message on a connection was large.
        self._connections: dict[str, set[str]] = {}

    @asynccontextmanager
    async def request(self, context: Context, caller: str, method: str) -> AsyncIterator[list[bytes]]:
        """The request's bytes, in a list that is to be emptied once they were parsed. The block answers it.

        ResourceExhausted if it cannot be taken in now, or does not arrive.
        """
        connection = context.peer()
        reading = Reading(self, self._quota_of(connection, method), caller)
        await reading.quota.enter(caller)
        try:
            data = await reading.read(context)
            is_large = len(data) > tuning.LARGE_REQUEST_BYTES
            self._remember(connection, method, is_large=is_large)
            if is_large:
                await self._wait_among_the_large(reading)
            else:
                reading.leave()
            box = [data]
            del data
            yield box
        except _NotInTime:
            self._remember(connection, method, is_large=True)
            raise ResourceExhausted(_TOO_SLOW) from None
        finally:
            reading.leave()

    async def _wait_among_the_large(self, reading: Reading) -> None:
        """Have a request answered as a large one that was not known to be one. It is in memory already."""
        if reading.move_to_large():
            return
        if self._parked >= tuning.LARGE_REQUESTS_PARKED:
            raise ResourceExhausted(_MANY_LARGE)
        self._parked += 1
        try:
            await reading.wait_among_the_large()
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
            if len(self._connections) > tuning.CONNECTIONS_REMEMBERED:
                del self._connections[next(iter(self._connections))]
        if is_large:
            large.add(method)
        elif large:
            large.discard(method)


class Reading:
    """One request that is being read, and the slot that it has."""

    def __init__(self, intake: Intake, quota: Quota, caller: str) -> None:
        self.quota = quota
        self._intake = intake
        self._caller = caller
        self._has_slot = True
        self._looks = 0

    async def read(self, context: Context) -> bytes:
        """The request. _NotInTime if it was not waited for any longer."""
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(tuning.REQUEST_LOOK.total_seconds(), self._look, loop)
        try:
            async with asyncio.timeout(tuning.REQUEST_PATIENCE.total_seconds()) as self._patience:
                data = await context.read()
        except TimeoutError:
            raise _NotInTime from None
        finally:
            self._next_look.cancel()
            self._intake.slow.discard(self)
        if data is grpc.aio.EOF:
            raise NoRequest
        return data  # type: ignore[no-any-return]

    def move_to_large(self) -> bool:
        """Take a slot among the large ones instead of the one that it has. False if there is none."""
        large = self._intake.large
        if self.quota is not large:
            if not large.try_enter(self._caller):
                return False
            self.leave()
            self.quota, self._has_slot = large, True
        return True

    async def wait_among_the_large(self) -> None:
        self.leave()
        await self._intake.large.enter(self._caller)
        self.quota, self._has_slot = self._intake.large, True

    def leave(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self.quota.leave(self._caller)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """It takes long; and not because this loop was late, once it was looked at several times."""
        self._looks += 1
        if self._looks >= tuning.REQUEST_SLOW_LOOKS:
            self._intake.slow.add(self)
            if self.move_to_large():
                is_over = self._looks >= tuning.REQUEST_FAIR_LOOKS and self.quota.is_wanted
            elif self.quota is self._intake.new:
                is_over = self.quota.is_wanted
            else:
                is_over = self._intake.slow.take_much
            if is_over:
                self._patience.reschedule(loop.time())
                return
        self._next_look = loop.call_later(tuning.REQUEST_LOOK.total_seconds(), self._look, loop)


class SlowRequests:
    """The requests that take long to arrive, and how much memory was taken since the first of them came."""

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
    def take_much(self) -> bool:
        """Whether they may be what takes the memory. Where that cannot be measured, many of them do."""
        now = resident_bytes()
        if not now:
            return len(self._readings) > tuning.LARGE_REQUESTS
        return now - self._before > tuning.SLOW_REQUESTS_BYTES
