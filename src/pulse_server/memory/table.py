"""The tables in memory: rows, clock, locks, and how every method reads and writes the row of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Claim, Job
from pulse_server.domain.policies import TopicPolicy
from pulse_server.domain.run_policies import RunPolicy
from pulse_server.domain.schedules import Schedule
from pulse_server.domain.status import JobStatus
from pulse_server.domain.steps import Step
from pulse_server.domain.unique import Scope
from pulse_server.memory.clock import ControlledClock
from pulse_server.memory.indexed_rows import Entry, JobRows
from pulse_server.memory.policies import InMemoryPolicyRepo
from pulse_server.memory.rows import KeptSignal, as_kept, as_read
from pulse_server.memory.workflow_rows import Unreported, WorkflowRow

DEFAULT_RUN = RunPolicy(max_crashes=5)


class JobTable:
    """The rows of all nouns, and the clock.

    `locked`: jobs whose rows another session has locked. `spared`: workers, and until when they are spared.
    `steps`: by job. A job without steps and signals has no entry. `signals`: by job.
    `workflows`: workflows. `notices`: their jobs that ended or came back, and are not settled yet.
    `undo`: by job, the last action on it, and the job before and after.
    `periods`: by topic and throttled key, until when no job is stored, and the last one.
    """

    def __init__(
        self,
        clock: ControlledClock | None = None,
        run: RunPolicy = DEFAULT_RUN,
        lease: timedelta = timedelta(seconds=30),
    ) -> None:
        self.clock = clock or ControlledClock()
        self.jobs = JobRows()
        self.locked: set[str] = set()
        self.policies = InMemoryPolicyRepo(self.clock)
        self.run = run
        self.lease = lease
        self.spared: dict[str, datetime] = {}
        self.periods: dict[tuple[str, str], tuple[datetime, str]] = {}
        self.steps: dict[str, list[Step]] = {}
        self.signals: dict[str, list[KeptSignal]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.workflows: dict[str, WorkflowRow] = {}
        self.notices: dict[str, None] = {}
        self.unreported = Unreported()
        self.undo: dict[str, tuple[str, Job | None, Job]] = {}

    def policy(self, topic: str) -> TopicPolicy:
        return self.policies.policies.get(topic, TopicPolicy(topic))

    def _run_policy(self, job: Job) -> RunPolicy:
        policy = self.policy(job.topic)
        return policy.run.over(policy.declared).over(self.run)

    def _may_start(self, job: Job) -> bool:
        return job.start_by is None or job.attempts > 0 or job.start_by > self.clock.now()

    def answer(self, name: str) -> None:
        """Called first by each method of a port, with its name. Tests of outages override it."""

    def put(self, job: Job, **changes: object) -> Job:
        before = self.jobs.get(job.id, job)
        self.jobs[job.id] = changed = replace(job, **changes)  # type: ignore[arg-type]
        if changed.workflow_id is not None and before.finished_at != changed.finished_at:
            self.notices[job.id] = None
        return changed

    def free(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.id not in self.locked]

    def unlocked(self, entries: Iterable[Entry]) -> Iterator[Job]:
        """The jobs of these entries of an index that no other session has locked."""
        return (self.jobs[job_id] for _, job_id in entries if job_id not in self.locked)

    def existing(self, job_ids: Collection[str], *, is_read: bool = False) -> list[Job]:
        """The jobs of these ids that exist. Locked ones are left out, unless they are only read."""
        names = set(job_ids) if is_read else set(job_ids) - self.locked
        return [self.jobs[job_id] for job_id in sorted(names) if job_id in self.jobs]

    def held_by(self, claim: Claim, *, strict: bool = False, is_read: bool = False) -> Job | None:
        """The job, if the claim still holds it. Fields that a claim lacks are not checked, unless strict."""
        job = self.jobs.get(claim.job_id)
        if job is None or job.locked_by is None or (claim.job_id in self.locked and not is_read):
            return None
        if strict and (claim.worker_id is None or claim.attempt is None):
            return None
        return job if claim.covers(Claim(job.id, job.locked_by, job.attempts, job.run)) else None

    def steps_of(self, job_id: str) -> list[Step] | None:
        """The steps of a job. None: it has neither steps nor signals."""
        rows = self.steps.get(job_id)
        if rows is None:
            return None
        if self.jobs[job_id].status is JobStatus.COMPLETED:
            return list(rows)
        now = self.clock.now()
        return [as_read(row, now) for row in rows]

    def forget_steps(self, job_id: str) -> None:
        self.steps.pop(job_id, None)
        self.signals.pop(job_id, None)

    def key_holder(self, topic: str, key: str, scope: str) -> Job | None:
        """The job that holds the unique key."""
        found = self.jobs.unique[topic, key, scope]
        return self.jobs[found[0][1]] if found else None

    def may_have_its_key(self, job: Job) -> bool:
        """Whether an ended job may come back. A key that is unique while its job waits stays free then."""
        key = job.unique_key if job.unique_scope == Scope.LIVE else None
        return key is None or self.key_holder(job.topic, key, Scope.LIVE) is None

    def waits_in_canceled_workflow(self, job: Job) -> bool:
        """Whether a settle would cancel the job again if it were back."""
        workflow = self.workflows.get(job.workflow_id or "")
        return job.held and workflow is not None and workflow.canceled_at is not None

    def is_needed(self, job: Job) -> bool:
        """Whether the workflow of the job has not ended: other jobs may need its result."""
        workflow = self.workflows.get(job.workflow_id or "")
        return workflow is not None and workflow.finished_at is None

    def finish(self, job: Job, status: JobStatus, finished_by: str | None = None) -> Job:
        if status is JobStatus.COMPLETED and job.id in self.steps:
            self.steps[job.id] = [as_kept(row) for row in self.steps[job.id]]
            self.signals.pop(job.id, None)
        return self.put(
            job,
            status=status,
            ready=False,
            finished_at=self.clock.now(),
            finished_by=finished_by,
            locked_by=None,
            lease_until=None,
            progress=None if status is JobStatus.COMPLETED else job.progress,
            waits_for=None if status is JobStatus.COMPLETED else job.waits_for,
        )
