"""Looking at jobs, calling them off, and sending them round again."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server import tuning
from pulse_server.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from pulse_server.domain.ids import parse_job_id
from pulse_server.domain.jobs import Job, JobFilter, PageKey
from pulse_server.domain.status import JobStatus
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.signals import Signals


@dataclass(frozen=True, slots=True)
class Page:
    jobs: list[Job]
    next_token: str


class Jobs:
    def __init__(self, repo: JobRepo, signals: Signals) -> None:
        self._repo = repo
        self._signals = signals

    async def get(self, job_id: str) -> Job:
        job = await self._repo.get_job(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def list(self, wanted: JobFilter, *, limit: int, offset: int, token: str) -> Page:
        """One page, newest first. A token goes on where the page that gave it ended, whatever came since.

        A page of heavy jobs ends early: what a default gRPC client receives has a bound.
        """
        after = decode_token(token) if token else None
        # One more than asked tells whether there is a next page.
        jobs = await self._repo.list_jobs(wanted, limit=limit + 1, offset=offset, after=after)
        count = _fitting(jobs[:limit])
        if count == len(jobs):
            return Page(jobs, "")
        last = jobs[count - 1]
        return Page(jobs[:count], encode_token(PageKey(last.submitted_at, last.id)))

    async def cancel(self, job_id: str, reason: str) -> Job:
        """Call the job off. A job that is cancelled already stays so; one that is finished refuses."""
        cancelled = await self._repo.cancel_jobs([job_id], reason)
        if cancelled:
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
            self._signals.ready({retried[0].topic})
            return retried[0]
        job = await self.get(job_id)
        raise InvalidTransition(
            job_id, f"Job {job_id} is {job.status}: only DEAD_LETTERED and CANCELED jobs can be retried."
        )


def _fitting(jobs: Sequence[Job]) -> int:
    """How many of the jobs fit into one answer; at least one."""
    size = 0
    for count, job in enumerate(jobs):
        size += len(job.last_error or "") * 4 + sum(4 * len(k + v) for k, v in job.metadata.items())
        if size > tuning.PAGE_BYTES and count:
            return count
    return len(jobs)


def encode_token(key: PageKey) -> str:
    return base64.urlsafe_b64encode(f"{key.submitted_at.isoformat()}|{key.job_id}".encode()).decode()


def decode_token(token: str) -> PageKey:
    try:
        submitted_at, _, job_id = base64.urlsafe_b64decode(token.encode()).decode().partition("|")
        moment = datetime.fromisoformat(submitted_at)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return PageKey(moment.astimezone(UTC), parse_job_id(job_id))
    except (ValueError, OverflowError, binascii.Error, InvalidArgument):
        raise InvalidArgument("page_token", "is not one that this server gave out.") from None
