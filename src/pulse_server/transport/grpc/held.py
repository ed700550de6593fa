"""Bytes that were read and are not answered yet. Nothing more is read while they are too many. ADR-0038"""

from __future__ import annotations

import asyncio


class HeldBytes:
    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    async def room(self) -> None:
        """Return once there is room for more, of whatever size it is."""
        while self._count >= self._most:
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
