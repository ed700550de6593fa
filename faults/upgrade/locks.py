"""Measures how long a migration holds the lock that keeps all others from the table of jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

_POLL_SECONDS = 0.02
# By a session that migrates. Each of its transactions is one hold.
_HELD = """
SELECT held.virtualtransaction FROM pg_locks AS held JOIN pg_stat_activity AS session USING (pid)
WHERE held.relation = $1 AND held.mode = 'AccessExclusiveLock' AND held.granted
  AND session.application_name = 'pulsed migrate'
"""


@dataclass
class Holds:
    """Each time that the table was locked, in seconds, to within a few hundredths."""

    by_transaction: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> list[float]:
        return [last - first for first, last in self.by_transaction.values()]

    @property
    def longest(self) -> float:
        return max(self.seconds, default=0.0)


@asynccontextmanager
async def watched_locks(dsn: str) -> AsyncIterator[Holds]:
    """Watch for as long as the block lasts."""
    connection = await asyncpg.connect(dsn, timeout=60)
    holds = Holds()
    try:
        table = await connection.fetchval("SELECT 'pulse.jobs'::regclass::oid")
        watching = asyncio.create_task(_watch(connection, table, holds))
        try:
            yield holds
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    finally:
        connection.terminate()


async def _watch(connection: asyncpg.Connection[asyncpg.Record], table: int, holds: Holds) -> None:
    while True:
        transaction = await connection.fetchval(_HELD, table)
        if transaction is not None:
            now = time.monotonic()
            first, _ = holds.by_transaction.get(transaction, (now, now))
            holds.by_transaction[transaction] = first, now
        await asyncio.sleep(_POLL_SECONDS)
