"""Bounds the bytes of requests that were read and not answered yet. ADR-0038"""

from __future__ import annotations

import asyncio


class PendingBytes:
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
