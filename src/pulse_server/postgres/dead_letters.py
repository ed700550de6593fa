"""Groups of dead letters. Each method sends the SQL section of the same name.

Uses the connection of the overview: a count over many dead letters must not delay a claim or a
list.
"""

from __future__ import annotations

from pulse_server.domain.dead_letters import DeadLetterGroup, DeadLetterGroups
from pulse_server.postgres.database import Database
from pulse_server.postgres.rows import job_from_row
from pulse_server.postgres.statements import statements

_SQL = statements("dead_letters.sql")


class PostgresDeadLetterRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        rows = await self._database.watch.fetch(
            "list_dead_letter_groups", _SQL["list_dead_letter_groups"], topic, limit
        )
        groups = tuple(
            DeadLetterGroup(row["jobs"], row["first_at"], row["last_at"], job_from_row(row)) for row in rows
        )
        return DeadLetterGroups(groups, rows[0]["total"] if rows else 0)
