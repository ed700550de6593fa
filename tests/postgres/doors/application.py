"""A role of an application, with rights to functions of the interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from pulse_server.database.rights import grants
from tests.postgres.sessions import Connection
from tests.server.roles import execute, role_in


@asynccontextmanager
async def application(dsn: str, *rights: str) -> AsyncIterator[tuple[str, Connection]]:
    """A role with the rights that `pulsed grants` prints, and a session of it."""
    async with role_in(dsn) as (role, as_role):
        await execute(dsn, *grants({right: [role] for right in rights}))
        connection = await asyncpg.connect(as_role, timeout=60)
        try:
            yield role, connection
        finally:
            await connection.close(timeout=10)
