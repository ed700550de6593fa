"""Heartbeats, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Claim
from pulse_server.domain.leases import ExtendedLeases, StoredProgress
from pulse_server.domain.progress import ProgressReport
from pulse_server.memory.progress import with_progress
from pulse_server.memory.promotions import InMemoryPromotions
from pulse_server.repos.jobs import NO_CONFIRMATIONS, NO_PROGRESS, NO_TIME_LIMITS


class InMemoryLeases(InMemoryPromotions):
    """The statement that extends leases."""

    async def extend_leases(
        self,
        claims: Sequence[Claim],
        lease: timedelta,
        time_limits: Mapping[str, timedelta] = NO_TIME_LIMITS,
        progress: Mapping[Claim, ProgressReport] = NO_PROGRESS,
        confirm_within: Mapping[Claim, timedelta] = NO_CONFIRMATIONS,
    ) -> ExtendedLeases:
        self.answer("extend_leases")
        answer = ExtendedLeases(set(), set(), set(), [], {})
        now = self.clock.now()
        for claim in claims:
            if (job := self.held_by(claim)) is None:
                continue
            assert job.started_at is not None
            assert job.lease_until is not None
            until, limit = now + lease, time_limits.get(job.topic, time_limits.get(""))
            end = None if limit is None else job.started_at + limit + lease
            until = until if end is None else max(job.lease_until, min(until, end))
            within = confirm_within.get(claim)
            delivered = job.delivered or within is None or within > timedelta(0)
            if (report := progress.get(claim)) is not None:
                job = with_progress(job, report, now)
                assert job.progress is not None
                answer.stored.append(StoredProgress(claim, job.topic, job.progress._replace(cursor="")))
            self.put(job, lease_until=until, delivered=delivered)
            if within is not None:
                answer.confirmed_until[claim] = until
            is_over = end is not None and end <= now
            (answer.over if is_over else answer.extended if delivered else answer.late).add(claim)
        return answer

    async def take_back_starts(self, confirmed_until: Mapping[Claim, datetime]) -> None:
        self.answer("take_back_starts")
        for claim, until in confirmed_until.items():
            if (job := self.held_by(claim)) is not None and job.lease_until == until:
                self.put(job, delivered=False)
