"""Groups of dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from pulse_server.base.bounds import LEASE_EXPIRED_GROUP
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import JobStatus
from pulse_server.views.attention import DeadLetters
from tests.fakes.store import Store, failure

HOUR = timedelta(hours=1)


@dataclass
class Morgue:
    """The dead letters, and the jobs below them."""

    letters: DeadLetters
    store: Store

    async def bury(self, group: str, *, hours_ago: int, submitted: int = 9, topic: str = "email") -> str:
        """A job dies of an error of this group, that long ago. Returns its id."""
        claim = await self.store.start(topic=topic, payload=b"p", metadata={"k": "v"})
        await self.store.repo.fail_jobs([failure(claim, f"of {group}", discard=True, error_group=group)])
        await self.store.time.age(claim.job_id, submitted=submitted * HOUR, finished=hours_ago * HOUR)
        return claim.job_id

    async def listed(self, topic: str | None = None, limit: int = 9) -> list[tuple[str, str, int]]:
        found = await self.letters.list_dead_letter_groups(topic, limit)
        return [(group.sample.topic, group.sample.error_group, group.count) for group in found.groups]


@pytest.fixture
async def morgue(shared_dsn: str, store: Store) -> AsyncIterator[Morgue]:
    database = Database(shared_dsn)
    yield Morgue(DeadLetters(database), store)
    await database.close()


async def test_without_dead_letters_there_are_no_groups(morgue: Morgue) -> None:
    await morgue.store.reach(JobStatus.CANCELED)
    found = await morgue.letters.list_dead_letter_groups(None, 9)

    assert (found.groups, found.left_out) == ((), 0)


async def test_group_has_its_count_its_times_and_its_latest_job(morgue: Morgue) -> None:
    await morgue.bury("aa", hours_ago=3)
    last = await morgue.bury("aa", hours_ago=1, submitted=8)
    await morgue.bury("aa", hours_ago=2, submitted=7)

    (group,) = (await morgue.letters.list_dead_letter_groups(None, 9)).groups

    assert (group.count, group.sample.id) == (3, last)
    assert group.last_at - group.first_at > 1.9 * HOUR
    assert group.last_at == group.sample.finished_at
    job = group.sample
    assert (job.status, job.last_error, job.metadata) == (JobStatus.DEAD_LETTERED, "of aa", {"k": "v"})
    assert (job.payload, job.history) == (b"", ())


async def test_group_with_the_latest_dead_letter_comes_first(morgue: Morgue) -> None:
    await morgue.bury("aa", hours_ago=3)
    await morgue.bury("bb", hours_ago=2)
    await morgue.bury("aa", hours_ago=1)

    assert await morgue.listed() == [("email", "aa", 2), ("email", "bb", 1)]


async def test_each_topic_has_groups_of_its_own(morgue: Morgue) -> None:
    await morgue.bury("aa", hours_ago=2)
    await morgue.bury("aa", hours_ago=1, topic="sms")

    assert await morgue.listed() == [("sms", "aa", 1), ("email", "aa", 1)]
    assert await morgue.listed("email") == [("email", "aa", 1)]
    assert await morgue.listed("unused") == []


async def test_groups_past_the_limit_are_counted(morgue: Morgue) -> None:
    for hours_ago in range(1, 5):
        await morgue.bury(f"a{hours_ago}", hours_ago=hours_ago)

    found = await morgue.letters.list_dead_letter_groups(None, 2)

    assert [group.sample.error_group for group in found.groups] == ["a1", "a2"]
    assert found.left_out == 2


async def test_dead_letters_without_a_group_are_one(morgue: Morgue) -> None:
    await morgue.bury("", hours_ago=2)
    await morgue.bury("", hours_ago=1)

    assert await morgue.listed() == [("email", "", 2)]


async def test_job_that_is_retried_leaves_its_group(morgue: Morgue) -> None:
    job_id = await morgue.bury("aa", hours_ago=1)
    (job,) = await morgue.store.repo.retry_jobs([job_id], 1)

    assert job.error_group == ""
    assert await morgue.listed() == []


async def test_attempt_that_another_follows_gives_no_group(morgue: Morgue) -> None:
    claim = await morgue.store.start()
    await morgue.store.repo.fail_jobs([failure(claim, error_group="aa")])

    assert (await morgue.store.job(claim.job_id)).error_group == ""


async def test_jobs_whose_lease_lapsed_for_the_last_time_are_a_group(morgue: Morgue) -> None:
    claim = await morgue.store.start(max_attempts=1)
    await morgue.store.time.lapse_leases(claim.job_id)
    await morgue.store.repo.reap_expired(9)

    assert await morgue.listed() == [("email", LEASE_EXPIRED_GROUP, 1)]


async def test_lapsed_lease_that_another_attempt_follows_gives_no_group(morgue: Morgue) -> None:
    claim = await morgue.store.start()
    await morgue.store.time.lapse_leases(claim.job_id)
    await morgue.store.repo.reap_expired(9)

    assert (await morgue.store.job(claim.job_id)).error_group == ""
