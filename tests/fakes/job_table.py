"""The jobs table in memory: rows, clock, locks, and how every method reads and writes a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import Claim, Job
from pulse_server.domain.policies import TopicPolicy
from pulse_server.domain.run_policies import RunPolicy
from pulse_server.domain.status import JobStatus
from tests.fakes.clock import ControlledClock
from tests.fakes.policies import InMemoryPolicyRepo

DEFAULT_RUN = RunPolicy(max_crashes=5)


class JobTable:
    """`is_away` makes every method of the repo raise Unavailable; `calls` holds their names.

    `locked`: jobs whose rows another session has locked. `spared`: workers, and until when they are spared.
    `periods`: by topic and throttled key, until when no job is stored, and the last one.
    """

    def __init__(
        self,
        clock: ControlledClock | None = None,
        run: RunPolicy = DEFAULT_RUN,
        lease: timedelta = timedelta(seconds=30),
    ) -> None:
        self.clock = clock or ControlledClock()
        self.jobs: dict[str, Job] = {}
        self.is_away = False
        self.locked: set[str] = set()
        self.policies = InMemoryPolicyRepo()
        self.run = run
        self.lease = lease
        self.spared: dict[str, datetime] = {}
        self.periods: dict[tuple[str, str], tuple[datetime, str]] = {}
        self.calls: list[str] = []

    def _policy(self, job: Job) -> TopicPolicy:
        return self.policies.policies.get(job.topic, TopicPolicy(job.topic))

    def _run_policy(self, job: Job) -> RunPolicy:
        policy = self._policy(job)
        return policy.run.over(policy.declared).over(self.run)

    def _may_start(self, job: Job) -> bool:
        return job.start_by is None or job.attempts > 0 or job.start_by > self.clock.now()

    def _answer(self, name: str) -> None:
        self.calls.append(name)
        if self.is_away:
            raise Unavailable("The database did not answer. Try again.")

    def _put(self, job: Job, **changes: object) -> Job:
        self.jobs[job.id] = changed = replace(job, **changes)  # type: ignore[arg-type]
        return changed

    def _free(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.id not in self.locked]

    def _existing(self, job_ids: Collection[str], *, is_read: bool = False) -> list[Job]:
        """The jobs of these ids that exist. Locked ones are left out, unless they are only read."""
        names = set(job_ids) if is_read else set(job_ids) - self.locked
        return [self.jobs[job_id] for job_id in sorted(names) if job_id in self.jobs]

    def _held(self, claim: Claim, *, strict: bool = False, is_read: bool = False) -> Job | None:
        """The job, if the claim still holds it. Fields that a claim lacks are not checked, unless strict."""
        job = self.jobs.get(claim.job_id)
        if job is None or job.locked_by is None or (claim.job_id in self.locked and not is_read):
            return None
        if strict and (claim.worker_id is None or claim.attempt is None):
            return None
        return job if claim.covers(Claim(job.id, job.locked_by, job.attempts, job.run)) else None

    def _finish(self, job: Job, status: JobStatus, finished_by: str | None = None) -> Job:
        return self._put(
            job,
            status=status,
            ready=False,
            finished_at=self.clock.now(),
            finished_by=finished_by,
            locked_by=None,
            lease_until=None,
            progress=None if status is JobStatus.COMPLETED else job.progress,
        )
