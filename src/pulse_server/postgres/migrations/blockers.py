"""Finds the transaction that blocks a migration, while it waits: afterwards it cannot be found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import asyncpg

from pulse_server.base import tuning
from pulse_server.postgres.connector import Connector, make_own
from pulse_server.postgres.statements import statements

_POLL = timedelta(milliseconds=200)

_SQL = statements("locks.sql")


class Blockers:
    """The sessions that were last seen to block the session with this process id."""

    def __init__(self, connector: Connector, pid: int) -> None:
        self._connector = connector
        self._pid = pid
        self.seen = ""

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts. Errors of the watching session are ignored."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self) -> None:
        # Most files are applied at once, and no second session is needed.
        await asyncio.sleep(_POLL.total_seconds())
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await self._connector.connect(
                settings={"application_name": "pulsed migrate"}, command_timeout=tuning.STATEMENT_TIMEOUT
            )
            try:
                await make_own(connection)
                while True:
                    self.seen = await connection.fetchval(_SQL["blockers_of"], self._pid) or self.seen
                    await asyncio.sleep(_POLL.total_seconds())
            finally:
                connection.terminate()
