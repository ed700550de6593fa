"""Heartbeats, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pulse_server.domain.jobs import Claim
from pulse_server.domain.leases import BoundedLeases, ExtendedWithProgress, StoredProgress
from pulse_server.domain.progress import ProgressReport
from tests.fakes.job_promotions import InMemoryPromotions
from tests.fakes.progress import with_progress


class InMemoryLeases(InMemoryPromotions):
    """The statements that extend leases."""

    async def extend_leases(self, claims: Sequence[Claim], lease: timedelta) -> set[Claim]:
        self._answer("extend_leases")
        extended = set()
        for claim in claims:
            if (job := self._held(claim)) is not None:
                self._put(job, lease_until=self.clock.now() + lease, delivered=True)
                extended.add(claim)
        return extended

    async def extend_bounded_leases(
        self, claims: Sequence[Claim], lease: timedelta, limits: Mapping[str, timedelta]
    ) -> BoundedLeases:
        self._answer("extend_bounded_leases")
        answer = BoundedLeases(set(), set())
        now = self.clock.now()
        for claim in claims:
            if (job := self._held(claim)) is None:
                continue
            assert job.started_at is not None
            assert job.lease_until is not None
            until, limit = now + lease, limits.get(job.topic, limits.get(""))
            end = None if limit is None else job.started_at + limit + lease
            until = until if end is None else min(until, end)
            self._put(job, lease_until=max(job.lease_until, until), delivered=True)
            (answer.over if end is not None and end <= now else answer.extended).add(claim)
        return answer

    async def extend_with_progress(
        self,
        claims: Sequence[Claim],
        lease: timedelta,
        limits: Mapping[str, timedelta],
        progress: Mapping[Claim, ProgressReport],
    ) -> ExtendedWithProgress:
        self._answer("extend_with_progress")
        extended, over = await self.extend_bounded_leases(claims, lease, limits)
        stored = []
        for claim, report in progress.items():
            if (job := self._held(claim)) is not None:
                job = with_progress(job, report, self.clock.now())
                self._put(job)
                assert job.progress is not None
                stored.append(StoredProgress(claim, job.topic, job.progress._replace(cursor="")))
        return ExtendedWithProgress(extended, over, stored)
