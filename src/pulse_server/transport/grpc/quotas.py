"""Slots for requests, bounded in total and per caller, with a bounded queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pulse_server.domain.errors import ResourceExhausted
from pulse_server.transport.grpc.budgets import Budget

# Requests that wait to be read, up to 64 KiB of each in a buffer, and for how long. A thousand workers may
# come back at once.
REQUESTS_IN_LINE = 2048
REQUEST_TURN = timedelta(seconds=10)

_BUSY = "The server is reading as many requests as it can. Try again in a moment."


class Quota:
    """Slots for calls. A caller that has used its share does not delay other queued callers."""

    def __init__(self, most: int, *, turn: timedelta = REQUEST_TURN, busy: str = _BUSY) -> None:
        self._slots = Budget(most, of_one=max(1, most * 2 // 3))
        self._turn = turn.total_seconds()
        self._busy = busy
        self._queue: dict[asyncio.Future[None], str] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether a request waits for a slot."""
        return bool(self._queue)

    def try_enter(self, caller: str) -> bool:
        """Take a slot if one is free for the caller."""
        return self._slots.take(caller)

    async def enter(self, caller: str) -> None:
        """Wait for a slot and take it. Raises ResourceExhausted if the queue is full or the wait too long."""
        if not self._queue and self.try_enter(caller):
            return
        if self._is_queue_full(caller):
            raise ResourceExhausted(self._busy)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = caller
        self._grant_next()
        try:
            async with asyncio.timeout(self._turn):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(caller)  # it got the slot at the same moment
            if isinstance(error, TimeoutError):
                raise ResourceExhausted(self._busy) from None
            raise
        finally:
            self._queue.pop(turn, None)

    def _is_queue_full(self, caller: str) -> bool:
        """Whether the request may not wait. One caller may have half of the queue."""
        if len(self._queue) * 2 < REQUESTS_IN_LINE:
            return False
        of_caller = sum(waiting == caller for waiting in self._queue.values())
        return len(self._queue) >= REQUESTS_IN_LINE or of_caller * 2 >= REQUESTS_IN_LINE

    def leave(self, caller: str) -> None:
        """Free the slot for the next in the queue."""
        self._slots.give_back(caller)
        self._grant_next()

    def _grant_next(self) -> None:
        if not self._queue or self._slots.is_full:
            return
        for turn, caller in list(self._queue.items()):
            if not turn.done() and self.try_enter(caller):
                del self._queue[turn]
                turn.set_result(None)
                if self._slots.is_full:
                    return
