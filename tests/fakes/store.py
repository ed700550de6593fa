"""A store under test: its repo, its time machine, and the steps that most tests begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reports import FailureReport, Slots
from pulse_server.jobs.rules import Claim, ClaimedJob, Ended, Job, JobStatus
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.time_machines import PostgresTimeMachine

LEASE = timedelta(minutes=10)  # no test waits for it: the time machine makes leases expire


def a_job(topic: str = "email", **changes: Any) -> NewJob:
    """A job with the defaults that a test does not care about."""
    fields: dict[str, Any] = {"payload": b"{}", "priority": 0, "max_attempts": 5}
    return NewJob(id=changes.pop("id", new_id()), topic=topic, **{**fields, **changes})


def room(worker_id: str, count: int, *, confirms: bool = False) -> Slots:
    """Slots for this many jobs, all with one worker."""
    return Slots([worker_id], [confirms], [0] * count)


def statuses(counted: Mapping[Claim, Ended]) -> dict[Claim, JobStatus]:
    """The statuses of the jobs whose reports counted."""
    return {claim: ended.status for claim, ended in counted.items()}


def token(claimed: ClaimedJob) -> Claim:
    return claimed.claim


def success(claim: Claim) -> Claim:
    """The report of a success, which is the claim alone."""
    return claim


def failure(claim: Claim, error: str = "boom", **changes: Any) -> FailureReport:
    return FailureReport(claim, error, **changes)


@dataclass
class Store:
    repo: PostgresJobRepo
    time: PostgresTimeMachine

    async def submit(self, *jobs: NewJob) -> list[str]:
        """Insert new jobs. Returns their ids."""
        answers = await self.repo.insert_jobs(jobs)
        assert answers == [Submitted(job.id, False) for job in jobs]
        return [job.id for job in jobs]

    async def claim(self, worker_id: str = "A", count: int = 1, **choice: Any) -> list[Claim]:
        """Lease jobs of the usual topic, or of `topics`, to one worker. Returns the tokens."""
        topics = choice.pop("topics", ["email"])
        claimed = await self.repo.claim_batch(topics, room(worker_id, count, **choice), LEASE)
        return [token(job) for job in claimed]

    async def start(self, worker_id: str = "A", *, confirms: bool = False, **changes: Any) -> Claim:
        """Submit a job and have the worker claim it. Returns its token."""
        job = a_job(**changes)
        await self.submit(job)
        (claim,) = await self.claim(worker_id, confirms=confirms, topics=[job.topic])
        assert claim.job_id == job.id, "another job was ready before it"
        return claim

    async def claim_again(self, job_id: str, worker_id: str = "A", *, confirms: bool = False) -> Claim:
        """Let the job's wait pass and have the worker claim it."""
        await self.time.make_due(job_id)
        await self.repo.promote_due(1000)
        (claim,) = await self.claim(worker_id, confirms=confirms)
        assert claim.job_id == job_id, "another job was ready before it"
        return claim

    async def reach(self, status: JobStatus, **changes: Any) -> str:
        """Bring a new job into this status. Returns its id."""
        if status is JobStatus.PENDING:
            return (await self.submit(a_job(**changes)))[0]
        claim = await self.start(**changes)
        if status is JobStatus.COMPLETED:
            assert set(await self.repo.complete_jobs([claim])) == {claim}
        elif status is JobStatus.CANCELED:
            assert await self.repo.cancel_jobs([claim.job_id], "")
        elif status is not JobStatus.RUNNING:
            discard = status is JobStatus.DEAD_LETTERED
            failed = await self.repo.fail_jobs([failure(claim, discard=discard)])
            assert statuses(failed) == {claim: status}
        return claim.job_id

    async def job(self, job_id: str) -> Job:
        job = await self.repo.get_job(job_id)
        assert job is not None, f"job {job_id} is gone"
        return job

    async def status(self, job_id: str) -> JobStatus:
        return (await self.job(job_id)).status
