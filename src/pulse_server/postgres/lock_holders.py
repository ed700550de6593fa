"""Finds which session holds the lock that a statement met: to log it, or for the answer to an operator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import TypeAlias

from pulse_server.base.errors import PulseError
from pulse_server.postgres.statements import Fetch, statements

# Between two lines of the log: while a lock lasts, every statement may meet it.
LOGGED_EVERY = timedelta(seconds=10)
# Well within the shortest wait of a watched statement, and longer than nearly every one takes.
LOOK_AFTER = timedelta(milliseconds=50)
LOOK_AGAIN = timedelta(milliseconds=250)

# How long a server may have a task of all servers, such as retention: a step takes a second at most.
TASK_PATIENCE = timedelta(seconds=30)

_TASKS = "locks"

# Statements that lock whole tables, or the row of a task, with the tables: a session may have held another
# one for longer.
_TABLES = {
    **dict.fromkeys(("delete_expired", "completed_days"), _TASKS),
    **dict.fromkeys(("add_completed_days", "drop_completed_day"), "completed_jobs%"),
}

_SQL = statements("locks.sql")

log = logging.getLogger(__name__)


class LockHolders:
    def __init__(self) -> None:
        self._logged_at: float | None = None

    async def log(self, statement: str, patience: timedelta, fetch: Fetch) -> None:
        """Log the oldest session that has held a lock for this long. Without one nothing is logged."""
        now = monotonic()
        if self._logged_at is not None and now < self._logged_at + LOGGED_EVERY.total_seconds():
            return
        self._logged_at = now
        tables = _TABLES.get(statement, "%")
        if tables == _TASKS:
            patience = TASK_PATIENCE
        rows = await fetch(_SQL["lock_holders"], patience // timedelta(milliseconds=1), tables)
        for row in rows:
            log.warning("lock_met", extra={"statement": statement, **row})


Look: TypeAlias = Callable[[int], Awaitable[str]]
"""Returns the sessions that keep the session with this process id waiting, in words."""


class Blockers:
    """The sessions that were last seen to keep a statement waiting; empty if none did.

    Postgres names the blockers of a session only while it waits, so another session looks.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self.seen = ""

    @asynccontextmanager
    async def watched(self, pid: int) -> AsyncIterator[None]:
        """Look from time to time who blocks the session with this process id."""
        watching = asyncio.create_task(self._watch(pid))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self, pid: int) -> None:
        await asyncio.sleep(LOOK_AFTER.total_seconds())
        while True:
            with suppress(PulseError):
                self.seen = await self._look(pid)
            await asyncio.sleep(LOOK_AGAIN.total_seconds())
