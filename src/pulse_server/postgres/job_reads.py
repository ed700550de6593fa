"""Reads of the jobs table that change nothing. Each method sends the SQL section of the same name."""

from __future__ import annotations

from collections.abc import Collection

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Rows, statements
from pulse_server.domain.jobs import Job, JobFilter
from pulse_server.domain.status import JobStatus
from pulse_server.domain.undo import ActedOn
from pulse_server.domain.unique import Scope, UniqueHolder
from pulse_server.postgres.listing import Listing
from pulse_server.postgres.rows import THE_BEGINNING, job_from_row

_SQL = statements("queries.sql", "unique.sql")


class PostgresJobReads:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_job(self, job_id: str) -> Job | None:
        rows = await self._read(self._database.reads, "get_job", job_id)
        return job_from_row(rows[0]) if rows else None

    async def look_up_jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Read the fields that judge a report: status, attempts, holder, times and history."""
        rows = await self._read(self._database.hot, "look_up_jobs", list(job_ids))
        return {job.id: job for job in map(job_from_row, rows)}

    async def jobs_of_unended_workflows(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs whose workflow has not ended. They cannot be deleted."""
        rows = await self._read(self._database.reads, "jobs_of_unended_workflows", list(job_ids))
        return {str(row["id"]) for row in rows}

    async def canceled_workflows_of(self, job_ids: Collection[str]) -> dict[str, str]:
        """Those of the jobs that wait in a canceled workflow, each with it. They cannot be retried."""
        rows = await self._read(self._database.reads, "canceled_workflows_of", list(job_ids))
        return {str(row["id"]): str(row["workflow_id"]) for row in rows}

    async def job_statuses(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        """The statuses of the existing jobs, by id."""
        rows = await self._read(self._database.reads, "job_statuses", list(job_ids))
        return {str(row["id"]): JobStatus(row["status"]) for row in rows}

    async def list_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[Job]:
        """Newest first, without payloads and histories. `until` is the last that may be read."""
        listing = Listing(_SQL, "list_jobs", wanted, after, until)
        statement = listing.page(limit=limit, offset=offset)
        rows = await self._database.reads.fetch("list_jobs", statement, *listing.arguments)
        return [job_from_row(row) for row in rows]

    async def matching_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[PageKey]:
        """The keys of matching jobs, newest first."""
        listing = Listing(_SQL, "matching_jobs", wanted, after, until)
        statement = listing.page(limit=limit, offset=offset)
        rows = await self._database.reads.fetch("matching_jobs", statement, *listing.arguments)
        return [PageKey(row["submitted_at"], str(row["id"])) for row in rows]

    async def count_matching_jobs(
        self, wanted: JobFilter, *, until: PageKey | None = None, most: int | None = None
    ) -> int:
        """How many jobs match. It may stop once there are `most`."""
        listing = Listing(_SQL, "count_matching_jobs", wanted, until=until)
        statement = listing.count(most)
        rows = await self._database.reads.fetch("count_matching_jobs", statement, *listing.arguments)
        return int(rows[0]["jobs"])

    async def find_jobs(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with these hexadecimal digits."""
        first, last = prefix.ljust(32, "0"), prefix.ljust(32, "f")
        rows = await self._read(self._database.reads, "find_jobs", first, last, limit)
        return [str(row["id"]) for row in rows]

    async def unique_holders(
        self, job_ids: Collection[str], scopes: Collection[Scope] = (Scope.LIVE,)
    ) -> dict[str, UniqueHolder]:
        """The finished jobs that cannot be retried, each with the holder of its unique key."""
        rows = await self._read(self._database.operators, "unique_holders", list(job_ids), list(scopes))
        return {str(job_id): UniqueHolder(str(holder), key) for job_id, holder, key in rows}

    async def jobs_of_action(self, action: str, *, after: str | None, limit: int) -> list[ActedOn]:
        """The jobs that the action changed last, by id, after this id."""
        after = after or THE_BEGINNING.id
        rows = await self._read(self._database.operators, "jobs_of_action", action, after, limit)
        return [ActedOn(str(row["id"]), row["can_be_undone"], row["was_running"]) for row in rows]

    async def _read(self, connections: Connections, name: str, *args: object) -> Rows:
        return await connections.fetch(name, _SQL[name], *args)
