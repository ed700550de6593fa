"""Looking at jobs, calling them off, and sending them round again."""

from __future__ import annotations

from pulse_server.domain.errors import InvalidTransition, JobNotFound
from pulse_server.domain.jobs import Job, JobFilter, PageKey
from pulse_server.domain.status import JobStatus
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.paging import Page, page_of, text_weight
from pulse_server.service.signals import Signals
from pulse_server.telemetry.metrics import Metrics


class Jobs:
    def __init__(self, repo: JobRepo, signals: Signals, metrics: Metrics | None = None) -> None:
        self._repo = repo
        self._signals = signals
        self._metrics = metrics or Metrics()

    async def get(self, job_id: str) -> Job:
        job = await self._repo.get_job(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def list(self, wanted: JobFilter, *, limit: int, offset: int, token: str) -> Page[Job]:
        """One page, newest first. A token goes on where the page that gave it ended, whatever came since."""
        return await page_of(
            lambda count, after: self._repo.list_jobs(wanted, limit=count, offset=offset, after=after),
            limit,
            token,
            key=page_key,
            weight=job_weight,
        )

    async def cancel(self, job_id: str, reason: str) -> Job:
        """Call the job off. A job that is cancelled already stays so; one that is finished refuses."""
        cancelled = await self._repo.cancel_jobs([job_id], reason)
        if cancelled:
            self._metrics.count_topics(self._metrics.canceled, [cancelled[0].job.topic])
            if cancelled[0].ended_claim:
                self._signals.ended([cancelled[0].ended_claim])
            return cancelled[0].job
        job = await self.get(job_id)
        if job.status is not JobStatus.CANCELED:
            raise InvalidTransition(job_id, f"Job {job_id} is {job.status}: it can no longer be cancelled.")
        return job

    async def retry(self, job_id: str, attempts: int) -> Job:
        """Put a dead-lettered or cancelled job back in line, with at least that many attempts ahead."""
        retried = await self._repo.retry_jobs([job_id], attempts)
        if retried:
            self._metrics.count_topics(self._metrics.redriven, [retried[0].topic])
            self._signals.ready({retried[0].topic})
            return retried[0]
        job = await self.get(job_id)
        raise InvalidTransition(
            job_id, f"Job {job_id} is {job.status}: only DEAD_LETTERED and CANCELED jobs can be retried."
        )


def page_key(job: Job) -> PageKey:
    return PageKey(job.submitted_at, job.id)


def job_weight(job: Job) -> int:
    return text_weight(job.metadata, job.last_error)
