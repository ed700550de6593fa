"""A store with settings of how jobs run: what its tests do with both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.jobs.reports import SnoozeReport
from pulse_server.jobs.rules import Claim, Ended, Job
from pulse_server.topics.store import PostgresTopicSettings
from tests.fakes.store import LEASE, Store

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True)
class Runs:
    """A store, and its settings of topics."""

    store: Store
    settings: PostgresTopicSettings

    async def declare(self, **entries: Any) -> None:
        await self.settings.declare_topics({"email": entries}, "w1")

    async def override(self, **entries: Any) -> None:
        await self.settings.set_topic("email", entries, (), "ada")

    async def job(self, job_id: str) -> Job:
        job = await self.store.repo.get_job(job_id)
        assert job is not None
        return job

    async def waits(self, job_id: str) -> timedelta:
        """How long the job waits for its next attempt, from now on."""
        return (await self.job(job_id)).next_run_at - await self.store.repo.database_now()

    async def lose(self, claim: Claim) -> Job:
        """Let the lease of a started attempt expire."""
        await self.store.repo.extend_leases([claim], LEASE)
        await self.store.time.lapse_leases(claim.job_id)
        await self.store.repo.reap_expired(100)
        return await self.job(claim.job_id)

    async def snooze(self, claim: Claim, delay: timedelta = HOUR, reason: str = "") -> dict[Claim, Ended]:
        return await self.store.repo.snooze_jobs([SnoozeReport(claim, delay, reason)])


def about(span: timedelta) -> Any:
    return pytest.approx(span.total_seconds(), abs=5)
