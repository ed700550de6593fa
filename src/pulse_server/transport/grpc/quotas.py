"""Room for requests, bounded in total and per caller, with a bounded queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.sharing import Budget

# Requests that wait to be read, up to 64 KiB of each in a buffer, and for how long. A thousand workers may
# come back at once.
REQUESTS_IN_LINE = 2048
REQUEST_TURN = timedelta(seconds=10)

_BUSY = "The server is reading as many requests as it can. Try again in a moment."


class Quota:
    """Room for calls, each of which takes as much at first. The waiting caller that has least is next."""

    def __init__(
        self,
        most: int,
        *,
        of_one: int | None = None,
        each: int = 1,
        spare: int = 0,
        turn: timedelta = REQUEST_TURN,
        busy: str = _BUSY,
    ) -> None:
        """`spare`: how much of `most` is kept for callers that have less than `each`."""
        self._most = most
        self._of_one = of_one or max(1, most * 2 // 3)
        self._taken = Budget(most, of_one=self._of_one, refusal=busy)
        self._each = each
        self._spare = spare
        self._turn = turn.total_seconds()
        self._busy = busy
        self._queue: dict[asyncio.Future[None], str] = {}

    def is_wanted(self, caller: str) -> bool:
        """Whether a request waits that could have the room of this caller."""
        return any(
            waiting == caller or self._taken.of(waiting) + self._each <= self._of_one
            for waiting in self._queue.values()
        )

    def _has_room(self, caller: str) -> bool:
        kept = self._spare if self._taken.of(caller) >= self._each else 0
        return self._taken.total + self._each + kept <= self._most and self._taken.has_room(
            caller, self._each
        )

    def try_enter(self, caller: str) -> bool:
        """Take room if there is some for the caller."""
        return self._has_room(caller) and self._taken.take(caller, self._each)

    async def enter(self, caller: str) -> None:
        """Wait for room and take it. Raises ResourceExhausted if the queue is full or the wait too long."""
        if self.try_enter(caller):
            return
        if self._is_queue_full(caller):
            raise ResourceExhausted(self._busy)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = caller
        try:
            async with asyncio.timeout(self._turn):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(caller)  # it got the room at the same moment
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

    def keep(self, caller: str, count: int) -> int:
        """Have `count` in place of what `enter` took. Returns it, or raises ResourceExhausted."""
        if count > self._each and not self._taken.take(caller, count - self._each):
            raise ResourceExhausted(self._busy)
        if count < self._each:
            self._give_back(caller, self._each - count)
        return count

    def leave(self, caller: str, count: int | None = None) -> None:
        """Free what `enter` took, or what `keep` left, for the next in the queue."""
        self._give_back(caller, self._each if count is None else count)

    def _give_back(self, caller: str, count: int) -> None:
        self._taken.give_back(caller, count)
        self._grant_next()

    def _grant_next(self) -> None:
        while self._queue and self._taken.total + self._each <= self._most:
            waiting = [turn for turn, caller in self._queue.items() if self._has_room(caller)]
            if not waiting:
                return
            turn = min(waiting, key=lambda turn: self._taken.of(self._queue[turn]))
            caller = self._queue.pop(turn)
            if not turn.done():
                self._taken.take(caller, self._each)
                turn.set_result(None)
