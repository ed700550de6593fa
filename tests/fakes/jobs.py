"""The port to the jobs table, in memory. The contract suite runs over it and over Postgres."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from pulse_server.domain.jobs import Cancellation, Claim, Job, Outcome
from pulse_server.domain.status import LIVE, REDRIVABLE, TERMINAL, JobStatus
from pulse_server.domain.unique import Scope
from tests.fakes.backoff import CANCELED_REST
from tests.fakes.job_queries import InMemoryQueries
from tests.fakes.rows import with_attempt
from tests.fakes.unique_jobs import InMemoryUniqueJobs


class InMemoryJobRepo(InMemoryUniqueJobs, InMemoryQueries):
    """The whole port: work, queries, and here the actions of an operator."""

    async def cancel_jobs(
        self, job_ids: Collection[str], reason: str, statuses: Collection[JobStatus] = LIVE
    ) -> list[Cancellation]:
        self._answer("cancel_jobs")
        canceled = []
        for job in self._existing(job_ids):
            if job.status not in LIVE & set(statuses):
                continue
            ended = Claim(job.id, job.locked_by, job.attempts, job.run) if job.locked_by is not None else None
            changed = with_attempt(job, Outcome.CANCELED, reason, self.clock.now()) if ended else job
            changed = replace(changed, last_error=reason or job.last_error)
            finished = self._finish(changed, JobStatus.CANCELED)
            canceled.append(Cancellation(_as_one_of(job_ids, finished), ended))
        return canceled

    async def retry_jobs(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
    ) -> list[Job]:
        self._answer("retry_jobs")
        retried = [
            self._put(
                job,
                status=JobStatus.PENDING,
                ready=self._rests_until(job) <= self.clock.now(),
                next_run_at=self._rests_until(job),
                max_attempts=max(job.max_attempts, job.attempts + attempts),
                finished_at=None,
                finished_by=None,
                error_group="",
                crashes=0,
                start_by=None,
                unique_scope=job.unique_scope if job.unique_scope == Scope.LIVE else None,
            )
            for job in self._existing(job_ids)
            if job.status in REDRIVABLE & set(statuses) and self._may_be_retried(job)
        ]
        return [_as_one_of(job_ids, job) for job in retried]

    def _rests_until(self, job: Job) -> datetime:
        now = self.clock.now()
        was_held = bool(job.history) and job.history[-1].outcome is Outcome.CANCELED
        if job.status is not JobStatus.CANCELED or not was_held or job.finished_at is None:
            return now
        return max(now, job.finished_at + CANCELED_REST)

    async def prioritize_jobs(
        self, job_ids: Collection[str], priority: int, statuses: Collection[JobStatus] = LIVE
    ) -> list[Job]:
        self._answer("prioritize_jobs")
        changed = [
            self._put(job, priority=priority)
            for job in self._existing(job_ids)
            if job.status in LIVE & set(statuses)
        ]
        return [_as_one_of(job_ids, job) for job in changed]

    async def delete_jobs(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> dict[str, JobStatus]:
        self._answer("delete_jobs")
        found = [job for job in self._existing(job_ids) if job.status in TERMINAL & set(statuses)]
        for job in found:
            del self.jobs[job.id]
        return {job.id: job.status for job in found}


def _as_one_of(job_ids: Collection[str], job: Job) -> Job:
    """Answers about several jobs leave out payload and history."""
    return job if len(job_ids) == 1 else replace(job, payload=b"", history=())
