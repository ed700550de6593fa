"""The port to the jobs table, in memory. The contract suite runs over it and over Postgres."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from pulse_server.domain.jobs import Cancellation, Claim, Job, Outcome
from pulse_server.domain.status import LIVE, REDRIVABLE, TERMINAL, JobStatus
from pulse_server.domain.unique import Scope
from pulse_server.memory.backoff import CANCELED_REST
from pulse_server.memory.job_reads import InMemoryQueries
from pulse_server.memory.rows import WITHOUT_END, with_attempt
from pulse_server.memory.undo import InMemoryUndo


class InMemoryJobRepo(InMemoryUndo, InMemoryQueries):
    """The whole port: work, queries, and here the actions of an operator."""

    async def cancel_jobs(
        self,
        job_ids: Collection[str],
        reason: str,
        statuses: Collection[JobStatus] = LIVE,
        *,
        action: str | None = None,
    ) -> list[Cancellation]:
        self.answer("cancel_jobs")
        canceled = []
        for job in self.existing(job_ids):
            if job.status not in LIVE & set(statuses):
                continue
            ended = Claim(job.id, job.locked_by, job.attempts, job.run) if job.locked_by is not None else None
            changed = with_attempt(job, Outcome.CANCELED, reason, self.clock.now()) if ended else job
            changed = replace(changed, last_error=reason or job.last_error)
            finished = self.remember(action, job, self.finish(changed, JobStatus.CANCELED))
            canceled.append(Cancellation(_as_one_of(job_ids, finished), ended))
        self.settle()
        return canceled

    async def retry_jobs(
        self,
        job_ids: Collection[str],
        attempts: int,
        statuses: Collection[JobStatus] = REDRIVABLE,
        *,
        fresh: bool = False,
        at_once: bool = False,
        action: str | None = None,
    ) -> list[Job]:
        self.answer("retry_jobs")
        retried = []
        for job in self.existing(job_ids):
            if job.status not in REDRIVABLE & set(statuses) or not self.may_have_its_key(job):
                continue
            if self.waits_in_canceled_workflow(job):
                continue
            if (found := self.node_of(job)) is not None:
                found[1].was_dropped = found[1].dropped is not None
            after = self.put(
                job,
                status=JobStatus.PENDING,
                ready=not job.held and self._retried_at(job, at_once) <= self.clock.now(),
                next_run_at=WITHOUT_END if job.held else self._retried_at(job, at_once),
                max_attempts=max(job.max_attempts, job.attempts + attempts),
                finished_at=None,
                finished_by=None,
                error_group="",
                crashes=0,
                start_by=job.start_by if self._keeps_its_start(job, at_once) else None,
                waits_for=None,
                progress=None if fresh else job.progress,
                unique_scope=job.unique_scope if job.unique_scope == Scope.LIVE else None,
            )
            after = self._without_steps(after) if fresh else after
            is_lost = fresh and (job.steps or job.progress is not None)
            retried.append(self.remember(action, None if is_lost else job, after))
        self.settle()
        return [_as_one_of(job_ids, job) for job in retried]

    def _without_steps(self, job: Job) -> Job:
        """Forget the steps of the job and the signals that it took."""
        if job.id in self.steps:
            self.steps[job.id] = []
            left = [kept for kept in self.signals.get(job.id, ()) if not kept.is_taken]
            self.signals[job.id] = [replace(kept, is_counted=False) for kept in left]
        return self.put(job, steps=0)

    def _keeps_its_start(self, job: Job, at_once: bool) -> bool:
        was_claimed = job.status is not JobStatus.CANCELED or job.run > 0
        return not at_once and not was_claimed and self.clock.now() < job.next_run_at < WITHOUT_END

    def _retried_at(self, job: Job, at_once: bool) -> datetime:
        now = self.clock.now()
        if self._keeps_its_start(job, at_once):
            return job.next_run_at
        was_held = bool(job.history) and job.history[-1].outcome is Outcome.CANCELED
        if job.status is not JobStatus.CANCELED or not was_held or job.finished_at is None:
            return now
        return max(now, job.finished_at + CANCELED_REST)

    async def prioritize_jobs(
        self,
        job_ids: Collection[str],
        priority: int,
        statuses: Collection[JobStatus] = LIVE,
        *,
        action: str | None = None,
    ) -> list[Job]:
        self.answer("prioritize_jobs")
        changed = [
            self.remember(action, job, self.put(job, priority=priority))
            for job in self.existing(job_ids)
            if job.status in LIVE & set(statuses)
        ]
        return [_as_one_of(job_ids, job) for job in changed]

    async def delete_jobs(
        self, job_ids: Collection[str], statuses: Collection[JobStatus] = TERMINAL
    ) -> dict[str, JobStatus]:
        self.answer("delete_jobs")
        found = [
            job
            for job in self.existing(job_ids)
            if job.status in TERMINAL & set(statuses) and not self.is_needed(job)
        ]
        for job in found:
            del self.jobs[job.id]
            self.forget_steps(job.id)
            self.undo.pop(job.id, None)
        return {job.id: job.status for job in found}


def _as_one_of(job_ids: Collection[str], job: Job) -> Job:
    """Answers about several jobs leave out payload and history."""
    return job if len(job_ids) == 1 else replace(job, payload=b"", history=())
