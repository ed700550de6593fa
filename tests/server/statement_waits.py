"""Waits until a statement of the server stands still, held up by a lock of the test's."""

import asyncio

from tests.eventually import PATIENCE_SECONDS
from tests.transport.jobs_table import JobsTable


async def statement_waits(table: JobsTable, name: str) -> None:
    """Return once a statement of this name waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock' AND query LIKE $1"
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await table.connection.fetchval(query, f"/* pulse:{name} */%"):
            await asyncio.sleep(0.01)
            # Inside a transaction the view would show the same moment again and again.
            await table.connection.execute("SELECT pg_stat_clear_snapshot()")
