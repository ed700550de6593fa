"""Retention. Each method sends the SQL section of the same name."""

from __future__ import annotations

from collections.abc import Mapping

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.rows import THE_BEGINNING
from pulse_server.postgres.statements import statements
from pulse_server.repos.retention import Sweep

_SQL = statements("transitions/retention.sql", "unique_periods.sql")
_STATUSES = {
    "completed": JobStatus.COMPLETED,
    "canceled": JobStatus.CANCELED,
    "dead_lettered": JobStatus.DEAD_LETTERED,
}


class PostgresRetentionRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        after = after or THE_BEGINNING
        # With the plans of the hot path: otherwise the planner sorts the whole table when its
        # statistics are missing or stale.
        (row,) = await self._database.hot.fetch(
            "delete_expired",
            _SQL["delete_expired"],
            *(kept.get(status) for status in _STATUSES.values()),
            min((span for span in kept.values() if span is not None), default=None),
            after.moment,
            after.id,
            limit,
        )
        return Sweep(
            looked_at=row["looked_at"],
            reached=PageKey(row["submitted_at"], str(row["id"])) if row["looked_at"] else None,
            deleted={status: row[name] for name, status in _STATUSES.items() if row[name]},
            is_taken=not row["is_ours"],
        )

    async def forget_periods(self, limit: int) -> int:
        (row,) = await self._database.hot.fetch("forget_periods", _SQL["forget_periods"], limit)
        return int(row["forgotten"])
