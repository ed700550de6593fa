"""Jobs that clients wait for. Each method sends the SQL section of the same name."""

from __future__ import annotations

from collections.abc import Collection

from pulse_server.postgres.database import Database
from pulse_server.postgres.rows import job_from_row
from pulse_server.postgres.statements import statements
from pulse_server.repos.awaiting import FinishedJobs

_SQL = statements("awaiting.sql")


class PostgresAwaitingRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def finished_jobs(self, job_ids: Collection[str], most_bytes: int) -> FinishedJobs:
        rows = await self._database.reads.fetch(
            "finished_jobs", _SQL["finished_jobs"], list(job_ids), most_bytes
        )
        left_over, unfinished = (set(map(str, rows[0][name] or ())) for name in ("left_over", "unfinished"))
        return FinishedJobs(
            [job_from_row(row) for row in rows if row["id"] is not None], left_over, unfinished
        )
