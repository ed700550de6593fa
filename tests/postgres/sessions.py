"""Sessions of the database, seen from outside: waiting for one to be blocked, cutting others off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tests.eventually import PATIENCE_SECONDS

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Answer = TypeVar("Answer")


async def blocked(connection: Connection, action: Awaitable[Answer]) -> asyncio.Future[Answer]:
    """Start the action and return once it waits for a lock that another transaction holds."""
    task = asyncio.ensure_future(action)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await _a_session_waits(connection):
            assert not task.done(), "it should have had to wait"
            await asyncio.sleep(0.002)
    return task


async def no_session_waits(connection: Connection) -> None:
    """Return once no session waits for a lock any more, whether it got it or gave up."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _a_session_waits(connection):  # noqa: ASYNC110 - the database rings no bell
            await asyncio.sleep(0.002)


async def _a_session_waits(connection: Connection) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
    )


async def cut_sessions(connection: Connection, application_name: str) -> None:
    """End the sessions of that name as a restart of the database would, without a word to their clients."""
    cut = await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = $1",
        application_name,
    )
    assert cut, "there was no session to cut off"
