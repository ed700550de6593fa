"""Unique jobs over the jobs table in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import Job, NewJob, Submitted
from pulse_server.domain.status import JobStatus
from pulse_server.domain.unique import Scope, Unique
from pulse_server.repos.jobs import UniqueHolder
from tests.fakes.job_work import InMemoryWork


class InMemoryUniqueJobs(InMemoryWork):
    """Submits with a unique key. There are no races here: a rival that has started frees its key at once."""

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self._answer("insert_rich_jobs")
        return [self._insert_unique(job) for job in jobs]

    def _insert_unique(self, job: NewJob) -> Submitted | PulseError:
        unique, now = job.unique, self.clock.now()
        assert unique is not None
        if job.id in self.jobs and self.jobs[job.id].unique_key == unique.key:
            return Submitted(job.id, True)
        holder = self._holder(job.topic, unique.key, unique.scope)
        if holder is not None and holder.status is not JobStatus.PENDING and unique.scope is Scope.WAITING:
            self._put(holder, unique_scope=None)
            holder = None
        if holder is not None and unique.replaces:
            self._replace(holder, job, unique)
            return Submitted(holder.id, True, is_replaced=True)
        if holder is not None:
            return Submitted(holder.id, True)
        until, last = self.periods.get((job.topic, unique.key), (now, ""))
        if unique.throttle is not None and until > now:
            return Submitted(last, True)
        answer = self._insert(job)
        if isinstance(answer, Submitted) and not answer.duplicate:
            self._put(self.jobs[job.id], unique_key=unique.key, unique_scope=unique.scope.value)
            if unique.throttle is not None:
                self.periods[job.topic, unique.key] = (now + unique.throttle, job.id)
        return answer

    def _holder(self, topic: str, key: str, scope: str) -> Job | None:
        wanted = (topic, key, scope)
        live = [job for job in self.jobs.values() if job.finished_at is None]
        found = [job for job in live if (job.topic, job.unique_key, job.unique_scope) == wanted]
        return found[0] if found else None

    def _replace(self, holder: Job, job: NewJob, unique: Unique) -> None:
        now = self.clock.now()
        asked = job.run_at if job.run_at is not None else now + (job.delay or timedelta(0))
        due = min(holder.next_run_at, asked)
        if unique.longest is not None:
            is_due = holder.ready or holder.next_run_at <= now
            due = holder.next_run_at if is_due else min(asked, holder.submitted_at + unique.longest)
        self._put(
            holder,
            payload=job.payload,
            priority=job.priority,
            max_attempts=holder.attempts + job.max_attempts,
            metadata=dict(job.metadata or {}),
            next_run_at=due,
            ready=holder.ready or (unique.longest is None and asked <= now),
            start_by=None if job.start_within is None else due + job.start_within,
            lane=job.lane,
        )

    async def unique_holders(self, job_ids: Collection[str]) -> dict[str, UniqueHolder]:
        held: dict[str, UniqueHolder] = {}
        for job in self._existing(job_ids, is_read=True):
            if job.finished_at is None or job.unique_scope != Scope.LIVE or job.unique_key is None:
                continue
            if holder := self._holder(job.topic, job.unique_key, Scope.LIVE):
                held[job.id] = UniqueHolder(holder.id, job.unique_key)
        return held

    def _may_be_retried(self, job: Job) -> bool:
        key = job.unique_key if job.unique_scope == Scope.LIVE else None
        return key is None or self._holder(job.topic, key, Scope.LIVE) is None
