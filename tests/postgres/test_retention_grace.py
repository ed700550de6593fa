"""A shortened retention has a grace time: until it has passed, the longer one counts for all servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from pulse_server.domain.policies import Grace, Kept, PolicyChange, TopicPolicy
from pulse_server.domain.status import TERMINAL, JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.upkeep.retention import ExpiredJobs
from tests.fakes.store import Store
from tests.postgres.completed_jobs import put_back
from tests.postgres.sessions import Connection

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK, MONTH = 7 * DAY, 30 * DAY
KEPT: dict[JobStatus, Kept] = dict.fromkeys(TERMINAL, WEEK)
DEAD = JobStatus.DEAD_LETTERED


@dataclass(frozen=True)
class Graced:
    store: Store
    policies: PostgresPolicyRepo
    expired: ExpiredJobs
    """Of another server, which did not take the change."""
    connection: Connection

    async def set(self, *returned: JobStatus, **kept: Kept) -> TopicPolicy:
        change = PolicyChange({JobStatus[name]: span for name, span in kept.items()}, frozenset(returned))
        return await self.policies.set_policy("mail", change, "ada")

    async def move(self, by: timedelta) -> None:
        """Let the time pass, for the policy."""
        await self.connection.execute(
            "UPDATE pulse.topic_policies SET shorter_from = shorter_from - $1::interval", by
        )

    async def finished(self, status: JobStatus, ago: timedelta) -> str:
        job_id = await self.store.reach(status, topic="mail")
        await self.store.time.age(job_id, submitted=ago + HOUR, finished=ago)
        await put_back(self.connection, job_id)
        return job_id

    async def is_left(self, job_id: str) -> bool:
        await self.expired.delete_expired(KEPT, after=None, limit=100)
        return await self.store.repo.get_job(job_id) is not None


@pytest.fixture
async def graced(store: Store, connection: Connection, shared_dsn: str) -> AsyncIterator[Graced]:
    one, other = Database(shared_dsn), Database(shared_dsn)
    policies = PostgresPolicyRepo(one, Grace(HOUR, KEPT))
    yield Graced(store, policies, ExpiredJobs(other), connection)
    await one.close()
    await other.close()


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_shorter_retention_deletes_nothing_before_its_grace_time_has_passed(
    graced: Graced, status: JobStatus
) -> None:
    job = await graced.finished(status, ago=2 * DAY)
    policy = await graced.set(**{status: DAY})

    assert (policy.kept, policy.before) == ({status: DAY}, {status: WEEK})
    assert policy.shorter_from is not None
    assert policy.set_at is not None
    assert abs(policy.shorter_from - policy.set_at - HOUR) < timedelta(minutes=1)
    await graced.move(timedelta(minutes=50))
    assert await graced.is_left(job)

    await graced.move(timedelta(minutes=11))
    assert not await graced.is_left(job)
    (policy,) = await graced.policies.list_policies(limit=9)
    assert (policy.before, policy.shorter_from) == ({}, None)


@pytest.mark.parametrize("undo", ["the same value", "the setting"])
async def test_longer_value_that_is_set_again_within_the_grace_time_loses_nothing(
    graced: Graced, undo: str
) -> None:
    job = await graced.finished(DEAD, ago=2 * DAY)
    await graced.set(DEAD_LETTERED=DAY)
    policy = await (graced.set(DEAD) if undo == "the setting" else graced.set(DEAD_LETTERED=WEEK))

    assert (policy.before, policy.shorter_from) == ({}, None)
    await graced.move(2 * HOUR)
    assert await graced.is_left(job)


async def test_same_value_set_again_does_not_begin_the_grace_time_anew(graced: Graced) -> None:
    await graced.set(DEAD_LETTERED=DAY)
    await graced.move(timedelta(minutes=50))
    (before,) = await graced.policies.list_policies(limit=9)

    after = await graced.set(DEAD_LETTERED=DAY)

    assert (after.before, after.shorter_from) == ({DEAD: WEEK}, before.shorter_from)


async def test_value_in_between_keeps_what_the_first_one_kept(graced: Graced) -> None:
    job = await graced.finished(DEAD, ago=8 * DAY)
    await graced.set(DEAD_LETTERED=MONTH)
    await graced.set(DEAD_LETTERED=HOUR)
    policy = await graced.set(DEAD_LETTERED=WEEK)

    assert policy.before == {DEAD: MONTH}
    assert await graced.is_left(job)
    await graced.move(2 * HOUR)
    assert not await graced.is_left(job)


async def test_grace_time_of_one_status_does_not_bring_back_another(graced: Graced) -> None:
    """The statuses share the moment; a value that has taken effect stays in effect."""
    await graced.set(DEAD_LETTERED=DAY)
    await graced.move(2 * HOUR)
    policy = await graced.set(CANCELED=DAY)

    assert policy.before == {JobStatus.CANCELED: WEEK}
    assert not await graced.is_left(await graced.finished(DEAD, ago=2 * DAY))
    assert await graced.is_left(await graced.finished(JobStatus.CANCELED, ago=2 * DAY))


async def test_policy_that_is_removed_counts_until_its_grace_time_has_passed(graced: Graced) -> None:
    job = await graced.finished(DEAD, ago=8 * DAY)
    await graced.set(DEAD_LETTERED=None)
    policy = await graced.set(DEAD)

    assert (policy.kept, policy.before) == ({}, {DEAD: None})
    assert await graced.policies.list_policies(limit=9) == [policy]
    assert await graced.is_left(job)

    await graced.move(2 * HOUR)
    assert await graced.policies.list_policies(limit=9) == []
    assert not await graced.is_left(job)
