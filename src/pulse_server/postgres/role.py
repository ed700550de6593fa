"""Checks the role of DB_HOST before a server starts: its rights and its connection limits."""

from __future__ import annotations

from pulse_server.postgres.connection_limits import warn_of_low_limits
from pulse_server.postgres.migrations.schema import migration_connector, opened
from pulse_server.postgres.privileges import Purpose, require_rights


async def require_fit_role(dsn: str, *, needed: int | None) -> None:
    """Return if the role may use the whole schema; RightsMissing with the GRANTs if not.

    A limit below `needed` connections is logged. None: a pooler limits the connections.
    """
    async with opened(migration_connector(dsn)) as connection:
        await require_rights(connection, Purpose.SERVE)
        if needed is not None:
            await warn_of_low_limits(connection, needed)
