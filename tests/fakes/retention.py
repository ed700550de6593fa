"""Retention over the jobs table in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus
from pulse_server.repos.retention import Sweep
from tests.fakes.jobs import InMemoryJobRepo
from tests.fakes.policies import InMemoryPolicyRepo


class InMemoryRetentionRepo:
    """The whole port. `is_taken`: another replica runs retention at the moment."""

    def __init__(self, store: InMemoryJobRepo, policies: InMemoryPolicyRepo | None = None) -> None:
        self._store = store
        self._policies = policies or InMemoryPolicyRepo()
        self.is_taken = False

    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        self._store._answer("delete_expired")
        if self.is_taken:
            return Sweep(is_taken=True)
        now = self._store.clock.now()
        policies = self._policies.policies
        spans = [*kept.values(), *(span for policy in policies.values() for span in policy.kept.values())]
        shortest = min((span for span in spans if span is not None), default=None)
        walk = sorted(self._store.jobs.values(), key=lambda job: (job.submitted_at, job.id))
        looked_at = [
            job
            for job in walk
            if job.finished_at is not None
            and (after is None or (job.submitted_at, job.id) > (after.moment, after.id))
            and shortest is not None
            and job.submitted_at < now - shortest
        ][:limit]
        deleted: Counter[JobStatus] = Counter()
        for job in looked_at:
            own = policies[job.topic].kept if job.topic in policies else {}
            span = own[job.status] if job.status in own else kept.get(job.status)
            if job.finished_at and span is not None and job.finished_at < now - span:
                del self._store.jobs[job.id]
                deleted[job.status] += 1
        reached = PageKey(looked_at[-1].submitted_at, looked_at[-1].id) if looked_at else None
        return Sweep(len(looked_at), reached, dict(deleted))

    async def forget_periods(self, limit: int) -> int:
        return 0
