"""Slots for requests that are being read: so many in all, so many for one caller, and a bounded line."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from pulse_server import tuning
from pulse_server.domain.errors import ResourceExhausted

_BUSY = "The server has as many requests under way as it can take in. Try again in a moment."


class Quota:
    """A caller that has its share waits for itself and not before the others."""

    def __init__(self, most: int, *, turn: timedelta = tuning.REQUEST_TURN, busy: str = _BUSY) -> None:
        self._most = most
        self._turn = turn.total_seconds()
        self._busy = busy
        self._most_per_caller = max(1, most * 2 // 3)
        self._taken: Counter[str] = Counter()
        self._count = 0
        self._line: dict[asyncio.Future[None], str] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether a request waits for a slot."""
        return bool(self._line)

    def try_enter(self, caller: str) -> bool:
        """Take a slot if there is one that no other request waits for."""
        if self._count >= self._most or self._taken[caller] >= self._most_per_caller:
            return False
        self._count += 1
        self._taken[caller] += 1
        return True

    async def enter(self, caller: str) -> None:
        """Take a slot, when there is one. ResourceExhausted if the line is too long, or takes too long."""
        if not self._line and self.try_enter(caller):
            return
        if self._is_line_full(caller):
            raise ResourceExhausted(self._busy)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line[turn] = caller
        self._call_next()
        try:
            async with asyncio.timeout(self._turn):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(caller)  # its turn came at this very moment
            if isinstance(error, TimeoutError):
                raise ResourceExhausted(self._busy) from None
            raise
        finally:
            self._line.pop(turn, None)

    def _is_line_full(self, caller: str) -> bool:
        """Whether nothing more may wait. One caller has half of the line at the most."""
        if len(self._line) * 2 < tuning.REQUESTS_IN_LINE:
            return False
        of_caller = sum(waiting == caller for waiting in self._line.values())
        return len(self._line) >= tuning.REQUESTS_IN_LINE or of_caller * 2 >= tuning.REQUESTS_IN_LINE

    def leave(self, caller: str) -> None:
        """Give the slot to the next in line."""
        self._count -= 1
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        self._call_next()

    def _call_next(self) -> None:
        if not self._line or self._count >= self._most:
            return
        for turn, caller in list(self._line.items()):
            if not turn.done() and self.try_enter(caller):
                del self._line[turn]
                turn.set_result(None)
                if self._count >= self._most:
                    return
