"""Which rights the role of DB_HOST lacks, in the words that a DBA can run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pulse_server.domain.errors import PulseError
from pulse_server.postgres.connector import Session, own_transaction
from pulse_server.postgres.statements import statements

_SQL = statements("privileges.sql")


class Purpose(Enum):
    """What the rights are for. The value is the section of the SQL file."""

    LOOK = "grants_to_look"
    SERVE = "grants_to_serve"
    MIGRATE = "grants_to_migrate"


_WORDS = {
    Purpose.LOOK: "look at the schema pulse",
    Purpose.SERVE: "use the schema pulse",
    Purpose.MIGRATE: "change the schema pulse",
}


class RightsMissing(PulseError):
    """The role may not do what is asked of it; the sentence has the GRANTs that help."""

    def __init__(self, role: str, purpose: Purpose, grants: list[str]) -> None:
        self.grants = grants
        super().__init__(
            f"The database role {role} may not {_WORDS[purpose]}. Have the owner of the database, or a "
            f"superuser, run: {' '.join(grants)}"
        )


async def lacking_grants(
    connection: Session, purpose: Purpose, relations: Sequence[str] | None = None
) -> list[str]:
    """The statements to run; none if nothing is lacking. In a transaction: a pooler may be in between.

    `relations` are what a migration changes; None: any.
    """
    arguments = (relations,) if purpose is Purpose.MIGRATE else ()
    return [row["statement"] for row in await connection.fetch(_SQL[purpose.value], *arguments)]


async def require_rights(
    connection: Session, purpose: Purpose, relations: Sequence[str] | None = None
) -> None:
    """Return if the role has them; RightsMissing if not."""
    async with own_transaction(connection):
        if grants := await lacking_grants(connection, purpose, relations):
            raise RightsMissing(await connection.fetchval("SELECT CURRENT_USER::text"), purpose, grants)
