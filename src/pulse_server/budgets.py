"""Counts what callers have (bytes, slots, streams, awaited jobs), and bounds it. ADR-0038"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pulse_server.domain.errors import ResourceExhausted


class Budget:
    """A count in total and per caller, each with a bound."""

    def __init__(self, most: float = math.inf, *, of_one: int, refusal: str = "") -> None:
        self._most = most
        self._of_one = of_one
        self._refusal = refusal
        self._taken: Counter[str] = Counter()
        self.total = 0

    @property
    def is_full(self) -> bool:
        return self.total >= self._most

    def of(self, caller: str) -> int:
        return self._taken[caller]

    def has_room(self, caller: str, count: int = 1) -> bool:
        return self.total + count <= self._most and self._taken[caller] + count <= self._of_one

    def take(self, caller: str, count: int = 1) -> bool:
        """Take `count` if there is room. Returns whether there is."""
        if not self.has_room(caller, count):
            return False
        self.total += count
        self._taken[caller] += count
        return True

    def give_back(self, caller: str, count: int = 1) -> None:
        """Give back `count` of the caller's share."""
        self.total -= count
        self._taken[caller] -= count
        if not self._taken[caller]:
            del self._taken[caller]

    @contextmanager
    def taken(self, caller: str, count: int = 1) -> Iterator[None]:
        """Take `count` while the block runs. Raises ResourceExhausted if there is no room."""
        if not self.take(caller, count):
            raise ResourceExhausted(self._refusal)
        try:
            yield
        finally:
            self.give_back(caller, count)


class PendingBytes:
    """The bytes of requests that were read and not answered yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_full(self) -> bool:
        return self._count >= self._most

    async def wait_below_limit(self) -> None:
        """Return once the pending bytes are below the limit. The next request may be of any size."""
        while self.is_full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(turn)
            try:
                await turn
            finally:
                self._waiting.discard(turn)

    def add(self, count: int) -> None:
        self._count += count

    def remove(self, count: int) -> None:
        self._count -= count
        if self._waiting and self._count < self._most:
            for turn in self._waiting:
                if not turn.done():
                    turn.set_result(None)
