"""Unique jobs over the jobs table in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import REPLACED, Job, NewJob, Submitted
from pulse_server.domain.status import JobStatus
from pulse_server.domain.unique import Scope, Unique, UniqueHolder
from pulse_server.memory.rows import new_row
from pulse_server.memory.work import InMemoryWork


class InMemoryUniqueJobs(InMemoryWork):
    """Submits with a unique key. There are no races here: a rival that has started frees its key at once."""

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self.answer("insert_rich_jobs")
        return [self._insert_unique(job) for job in jobs]

    def _insert_unique(self, job: NewJob) -> Submitted | PulseError:
        unique, now = job.unique, self.clock.now()
        assert unique is not None
        if job.id in self.jobs and self.jobs[job.id].unique_key == unique.key:
            return Submitted(job.id, True, submitted_at=self.jobs[job.id].submitted_at)
        holder = self.holder_of(job.topic, unique)
        if holder is not None and unique.replaces:
            self._replace(holder, job, unique)
            return Submitted(holder.id, True, is_replaced=True, submitted_at=holder.submitted_at)
        if holder is not None:
            return Submitted(holder.id, True, submitted_at=holder.submitted_at)
        until, last = self.periods.get((job.topic, unique.key), (now, ""))
        if unique.throttle is not None and until > now:
            return Submitted(last, True)
        answer = self._insert(job)
        is_new = isinstance(answer, Submitted) and not answer.duplicate
        if is_new and unique.throttle is not None:
            self.periods[job.topic, unique.key] = (now + unique.throttle, job.id)
        return answer

    def holder_of(self, topic: str, unique: Unique) -> Job | None:
        """The job that holds the key. A job that has started frees a key that is for waiting jobs."""
        holder = self.key_holder(topic, unique.key, unique.scope)
        if holder is not None and holder.status is not JobStatus.PENDING and unique.scope is Scope.WAITING:
            self.put(holder, unique_scope=None)
            return None
        return holder

    def _replace(self, holder: Job, job: NewJob, unique: Unique) -> None:
        now = self.clock.now()
        self.undo.pop(holder.id, None)
        new = new_row(job, now)
        asked = new.next_run_at
        due = min(holder.next_run_at, asked)
        if unique.longest is not None:
            is_due = holder.ready or holder.next_run_at <= now
            due = holder.next_run_at if is_due else min(asked, holder.submitted_at + unique.longest)
        self.put(
            holder,
            **{name: getattr(new, name) for name in REPLACED},
            max_attempts=holder.attempts + job.max_attempts,
            next_run_at=holder.next_run_at if holder.held else due,
            ready=holder.ready or (unique.longest is None and asked <= now and not holder.held),
            start_by=None if job.start_within is None or holder.held else due + job.start_within,
        )

    async def unique_holders(
        self, job_ids: Collection[str], scopes: Collection[Scope] = (Scope.LIVE,)
    ) -> dict[str, UniqueHolder]:
        held: dict[str, UniqueHolder] = {}
        for job in self.existing(job_ids, is_read=True):
            key, scope = job.unique_key, job.unique_scope
            if job.finished_at is None or scope not in scopes or scope is None or key is None:
                continue
            if holder := self.key_holder(job.topic, key, scope):
                held[job.id] = UniqueHolder(holder.id, key)
        return held
