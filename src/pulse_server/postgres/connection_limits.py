"""How many connections this role may open, and which limit to raise if pulsed needs more."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pulse_server.postgres.connector import Session, own_transaction
from pulse_server.postgres.statements import statements

log = logging.getLogger(__name__)

_SQL = statements("connection_limits.sql")


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """A connection limit, and the number of open connections."""

    what: str
    """Whose limit it is, such as "the role pulse"."""
    allowed: int
    used: int
    raising: str
    """The statement that raises the limit, without the number at its end."""
    reserved: int
    """Reserved connections, which the new limit must include."""
    afterwards: str

    def sentence(self, needed: int) -> str:
        """Why the limit is too low, and the statement that raises it."""
        return (
            f"{self.what} allows {self.allowed} connections and {self.used} are open, but this pulsed needs "
            f"up to {needed}. Run {self.raising} {self.reserved + self.used + needed};{self.afterwards}"
        )


async def limits_of(connection: Session) -> list[ConnectionLimit]:
    """Every limit that applies to this role. In a transaction: a pooler may be in between."""
    return [ConnectionLimit(**dict(row)) for row in await connection.fetch(_SQL["connection_limits"])]


async def warn_of_low_limits(connection: Session, needed: int) -> None:
    """Log each limit that this server may reach, with the number that it needs."""
    async with own_transaction(connection):
        limits = await limits_of(connection)
    for limit in limits:
        if limit.allowed - limit.used < needed:
            log.warning(
                "connection_limit_is_low",
                extra={
                    "limit": limit.allowed,
                    "used": limit.used,
                    "needed": needed,
                    "hint": f"{limit.sentence(needed)} Under load, calls fail as UNAVAILABLE until then.",
                },
            )
