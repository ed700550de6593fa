"""A few connections, opened when they are needed and lent for one statement at a time.

The driver's own pool makes two tasks per loan. They take a third of the time of a small statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pulse_server.postgres.connector import Session


class Pool:
    def __init__(self, connect: Callable[[], Awaitable[Session]], size: int) -> None:
        self._connect = connect
        self._loans = asyncio.Semaphore(size)
        self._idle: list[Session] = []
        self._lent: set[Session] = set()

    @property
    def opened(self) -> int:
        return len(self._idle) + len(self._lent)

    @property
    def busy(self) -> int:
        return len(self._lent)

    @property
    def is_free(self) -> bool:
        """Whether a loan would begin at once."""
        return not self._loans.locked()

    async def borrow(self, timeout: float) -> Session:
        """A connection that is open. TimeoutError if none is free, or can be opened, in time."""
        if self._idle and not self._loans.locked():
            await self._loans.acquire()  # at once
            return self._lend() or await self._open(timeout)
        async with asyncio.timeout(timeout):
            await self._loans.acquire()
            return self._lend() or await self._open(timeout)

    def give_back(self, session: Session) -> None:
        """Take a connection back, open or closed."""
        self._lent.discard(session)
        if not session.is_closed():
            self._idle.append(session)
        self._loans.release()

    def close(self) -> None:
        """Cut every connection, lent or not."""
        for session in (*self._idle, *self._lent):
            session.terminate()
        self._idle.clear()

    def _lend(self) -> Session | None:
        while self._idle:
            # The last used session is the warmest, and has not been cut for being idle.
            session = self._idle.pop()
            if not session.is_closed():
                self._lent.add(session)
                return session
        return None

    async def _open(self, timeout: float) -> Session:
        try:
            async with asyncio.timeout(timeout):
                session = await self._connect()
        except BaseException:
            self._loans.release()
            raise
        self._lent.add(session)
        return session
