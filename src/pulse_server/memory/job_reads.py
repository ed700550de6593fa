"""The queries over the jobs table in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Claim, Job, JobFilter, PageKey
from pulse_server.domain.status import JobStatus
from pulse_server.memory.table import JobTable


class InMemoryQueries(JobTable):
    """The methods that read jobs and change none."""

    async def get_job(self, job_id: str) -> Job | None:
        self.answer("get_job")
        job = self.jobs.get(job_id)
        return job and replace(job, ready=self._is_claimable(job))

    def _is_claimable(self, job: Job) -> bool:
        return job.ready and self._may_start(job)

    async def look_up_jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        self.answer("look_up_jobs")
        # As sparse as the real answer, so that no service relies on more.
        return {
            job.id: replace(
                job,
                payload=b"",
                last_error=None,
                idempotency_key=None,
                schedule_id=None,
                metadata={},
                error_group="",
            )
            for job in self.existing(job_ids, is_read=True)
        }

    async def jobs_of_unended_workflows(self, job_ids: Collection[str]) -> set[str]:
        self.answer("jobs_of_unended_workflows")
        return {job.id for job in self.existing(job_ids, is_read=True) if self.is_needed(job)}

    async def canceled_workflows_of(self, job_ids: Collection[str]) -> dict[str, str]:
        self.answer("canceled_workflows_of")
        return {
            job.id: job.workflow_id
            for job in self.existing(job_ids, is_read=True)
            if job.workflow_id is not None and self.waits_in_canceled_workflow(job)
        }

    async def job_statuses(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        self.answer("job_statuses")
        return {job.id: job.status for job in self.existing(job_ids, is_read=True)}

    async def list_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[Job]:
        self.answer("list_jobs")
        found = [
            replace(
                job,
                payload=b"",
                history=(),
                result=None,
                ready=self._is_claimable(job),
                progress=job.progress and job.progress._replace(cursor=""),
            )
            for job in self.jobs.values()
            if _matches(job, wanted)
            and (after is None or (job.submitted_at, job.id) < (after.moment, after.id))
            and _is_within(job, until)
        ]
        found.sort(key=lambda job: (job.submitted_at, job.id), reverse=True)
        return found[offset : offset + limit]

    async def matching_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[PageKey]:
        self.answer("matching_jobs")
        found = await self.list_jobs(wanted, limit=limit, offset=offset, after=after, until=until)
        return [PageKey(job.submitted_at, job.id) for job in found]

    async def count_matching_jobs(
        self, wanted: JobFilter, *, until: PageKey | None = None, most: int | None = None
    ) -> int:
        self.answer("count_matching_jobs")
        return sum(_matches(job, wanted) and _is_within(job, until) for job in self.jobs.values())

    async def find_jobs(self, prefix: str, limit: int) -> list[str]:
        self.answer("find_jobs")
        return sorted(job_id for job_id in self.jobs if job_id.replace("-", "").startswith(prefix))[:limit]

    async def current_claims(self, claims: Sequence[Claim]) -> set[Claim]:
        self.answer("current_claims")
        return {claim for claim in claims if self.held_by(claim, is_read=True) is not None}

    async def topics_with_ready_jobs(self, topics: Collection[str]) -> set[str]:
        self.answer("topics_with_ready_jobs")
        return {topic for topic in topics if self.jobs.ready[topic]}

    async def steady_for(self, own: timedelta) -> timedelta:
        self.answer("steady_for")
        return own  # no other server has this store

    async def database_now(self) -> datetime:
        self.answer("database_now")
        return self.clock.now()


def _is_within(job: Job, until: PageKey | None) -> bool:
    return until is None or (job.submitted_at, job.id) >= (until.moment, until.id)


def _matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (wanted.topics is None or job.topic in wanted.topics)
        and (wanted.statuses is None or job.status in wanted.statuses)
        and (wanted.submitted_since is None or job.submitted_at >= wanted.submitted_since)
        and (wanted.submitted_before is None or job.submitted_at < wanted.submitted_before)
        and wanted.schedule_id in (None, job.schedule_id)
        and (wanted.error_contains is None or wanted.error_contains.lower() in (job.last_error or "").lower())
        and (not wanted.has_error or job.last_error is not None)
        and (wanted.metadata or {}).items() <= job.metadata.items()
        and wanted.error_group in (None, job.error_group)
        and wanted.lane in (None, job.lane)
    )
