"""Looks at the role of DB_HOST before a server starts: what it may do, how many connections it may open."""

from __future__ import annotations

from pulse_server.postgres.connection_limits import warn_of_low_limits
from pulse_server.postgres.migrations.schema import migration_connector, opened
from pulse_server.postgres.privileges import Purpose, require_rights


async def require_fit_role(dsn: str, *, needed: int | None) -> None:
    """Return if the role may use all of the schema; RightsMissing with the GRANTs if not.

    A limit below the connections that are needed is logged. None: a pooler has the say in that.
    """
    async with opened(migration_connector(dsn)) as connection:
        await require_rights(connection, Purpose.SERVE)
        if needed is not None:
            await warn_of_low_limits(connection, needed)
