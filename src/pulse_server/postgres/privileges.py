"""The rights that the role of DB_HOST lacks, as statements that a DBA can run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pulse_server.base.errors import PulseError
from pulse_server.postgres.connector import Session, own_transaction
from pulse_server.postgres.statements import statements

_SQL = statements("privileges.sql")


class Purpose(Enum):
    """The purpose of the rights. The value is the section of the SQL file."""

    LOOK = "grants_to_look"
    SERVE = "grants_to_serve"
    MIGRATE = "grants_to_migrate"


_WORDS = {
    Purpose.LOOK: "look at the schema pulse",
    Purpose.SERVE: "use the schema pulse",
    Purpose.MIGRATE: "change the schema pulse",
}


class RightsMissing(PulseError):
    """The role lacks rights; the message has the GRANTs to run."""

    def __init__(self, role: str, purpose: Purpose, grants: list[str]) -> None:
        self.grants = grants
        super().__init__(
            f"The database role {role} may not {_WORDS[purpose]}. Have the owner of the database, or a "
            f"superuser, run: {' '.join(grants)}"
        )


async def lacking_grants(
    connection: Session, purpose: Purpose, relations: Sequence[str] | None = None
) -> list[str]:
    """The statements to run; empty if no right is missing. In a transaction: a pooler may be in
    between.

    `relations` are the names that a migration changes; None: all.
    """
    arguments = (relations,) if purpose is Purpose.MIGRATE else ()
    return [row["statement"] for row in await connection.fetch(_SQL[purpose.value], *arguments)]


async def require_rights(
    connection: Session, purpose: Purpose, relations: Sequence[str] | None = None
) -> None:
    """Return if the role has the rights; RightsMissing if not."""
    async with own_transaction(connection):
        if grants := await lacking_grants(connection, purpose, relations):
            raise RightsMissing(await connection.fetchval("SELECT CURRENT_USER::text"), purpose, grants)
