"""Exports of finished jobs. Each method sends the SQL section of the same name."""

from __future__ import annotations

from datetime import datetime, timedelta

from pulse_server.domain.exports import ExportFilter, ExportPage
from pulse_server.domain.jobs import PageKey
from pulse_server.postgres.database import Database
from pulse_server.postgres.rows import THE_BEGINNING, job_from_row
from pulse_server.postgres.statements import statements
from pulse_server.postgres.steps import steps_of_timeline

_SQL = statements("exports.sql")


class PostgresExportRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def export_jobs(
        self, wanted: ExportFilter, *, after: PageKey | None, look_at: int, most_bytes: int
    ) -> ExportPage:
        after = after or THE_BEGINNING
        rows = await self._database.reads.fetch(
            *("export_jobs", _SQL["export_jobs"], after.moment, after.id, look_at, most_bytes),
            *(wanted.finished_since, wanted.finished_before, wanted.topic, list(wanted.statuses)),
        )
        jobs = [job_from_row(row) for row in rows if row["id"] is not None]
        walk = rows[0]
        if jobs and len(jobs) < walk["matched"]:  # the rest has no room on this page
            reached: PageKey | None = PageKey(jobs[-1].submitted_at, jobs[-1].id)
        elif walk["looked_at"] == look_at:
            reached = PageKey(walk["last_submitted_at"], str(walk["last_id"]))
        else:
            reached = None
        steps = {
            str(row["id"]): steps_of_timeline(row["step_list"])
            for row in rows
            if row["step_list"] is not None
        }
        return ExportPage(jobs, steps, reached)

    async def moment_ago(self, ago: timedelta) -> datetime:
        ((moment,),) = await self._database.reads.fetch("moment_ago", _SQL["moment_ago"], ago)
        return moment  # type: ignore[no-any-return]
