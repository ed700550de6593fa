"""Policies of topics: how long finished jobs are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import pytest

from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
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
FOREVER: dict[JobStatus, Kept] = dict.fromkeys(TERMINAL)
FINISHED = sorted(TERMINAL)


async def set_policy(
    policies: PostgresPolicyRepo, topic: str, *returned: JobStatus, **kept: Kept
) -> TopicPolicy:
    change = PolicyChange({JobStatus[name]: span for name, span in kept.items()}, frozenset(returned))
    return await policies.set_policy(topic, change, "ada")


@dataclass(frozen=True)
class Keeping:
    """A store, its policies and its retention."""

    store: Store
    policies: PostgresPolicyRepo
    expired: ExpiredJobs
    connection: Connection

    async def set(self, topic: str, **kept: Kept) -> TopicPolicy:
        return await set_policy(self.policies, topic, **kept)

    async def finished(self, status: JobStatus, topic: str, ago: timedelta) -> str:
        """A job that finished that long ago, an hour after it was submitted."""
        job_id = await self.store.reach(status, topic=topic)
        await self.store.time.age(job_id, submitted=ago + HOUR, finished=ago)
        await put_back(self.connection, job_id)
        return job_id

    async def left(self, *job_ids: str, kept: dict[JobStatus, Kept] = KEPT) -> list[bool]:
        """Which of them are there after a round of retention."""
        await self.expired.delete_expired(kept, after=None, limit=100)
        return [await self.store.repo.get_job(job_id) is not None for job_id in job_ids]


@pytest.fixture
async def keeping(store: Store, connection: Connection, shared_dsn: str) -> AsyncIterator[Keeping]:
    database = Database(shared_dsn)
    yield Keeping(store, PostgresPolicyRepo(database), ExpiredJobs(database), connection)
    await database.close()


@pytest.fixture
def policies(keeping: Keeping) -> PostgresPolicyRepo:
    return keeping.policies


@pytest.mark.parametrize("status", FINISHED)
async def test_policy_shorter_than_the_setting_deletes_its_topic_alone(
    keeping: Keeping, status: JobStatus
) -> None:
    await keeping.set("short", **{status: HOUR})
    ids = [
        await keeping.finished(status, topic, ago)
        for topic, ago in (("short", 2 * HOUR), ("short", HOUR / 2), ("other", 2 * HOUR), ("other", 8 * DAY))
    ]
    assert await keeping.left(*ids) == [False, True, True, False]


@pytest.mark.parametrize("status", FINISHED)
async def test_policy_longer_than_the_setting_keeps_its_topic(keeping: Keeping, status: JobStatus) -> None:
    await keeping.set("long", **{status: MONTH})
    ids = [
        await keeping.finished(status, topic, ago)
        for topic, ago in (("long", 8 * DAY), ("long", 31 * DAY), ("other", 8 * DAY))
    ]
    assert await keeping.left(*ids) == [True, False, False]


@pytest.mark.parametrize("status", FINISHED)
async def test_topic_that_is_kept_forever_loses_nothing(keeping: Keeping, status: JobStatus) -> None:
    await keeping.set("audit", **{status: None})
    ids = [await keeping.finished(status, "audit", 1000 * DAY), await keeping.finished(status, "o", 8 * DAY)]
    assert await keeping.left(*ids) == [True, False]


async def test_policy_holds_at_a_server_that_keeps_everything_forever(keeping: Keeping) -> None:
    await keeping.set("short", COMPLETED=HOUR)
    ids = [await keeping.finished(JobStatus.COMPLETED, topic, 2 * HOUR) for topic in ("short", "other")]
    assert await keeping.left(*ids, kept=FOREVER) == [False, True]


async def test_policy_of_one_status_leaves_the_others_to_the_setting(keeping: Keeping) -> None:
    await keeping.set("mail", COMPLETED=None)
    ids = [await keeping.finished(status, "mail", 8 * DAY) for status in FINISHED]
    assert await keeping.left(*ids) == [status is JobStatus.COMPLETED for status in FINISHED]


async def test_returned_policy_leaves_its_topic_to_the_setting(keeping: Keeping) -> None:
    await keeping.set("mail", COMPLETED=None)
    await set_policy(keeping.policies, "mail", JobStatus.COMPLETED)
    assert await keeping.left(await keeping.finished(JobStatus.COMPLETED, "mail", 8 * DAY)) == [False]


async def test_policy_that_is_returned_is_gone(policies: PostgresPolicyRepo) -> None:
    await set_policy(policies, "mail", COMPLETED=None)
    assert await set_policy(policies, "mail", JobStatus.COMPLETED) == TopicPolicy("mail")
    assert await policies.list_policies(limit=10) == []


async def test_policy_is_read_back_as_it_was_set(policies: PostgresPolicyRepo) -> None:
    await set_policy(policies, "mail", COMPLETED=None, CANCELED=timedelta(minutes=1))
    policy = await set_policy(policies, "mail", JobStatus.CANCELED, DEAD_LETTERED=timedelta(days=3650))

    assert policy.kept == {JobStatus.COMPLETED: None, JobStatus.DEAD_LETTERED: timedelta(days=3650)}
    assert await policies.list_policies(limit=10) == [policy]
    assert (policy.set_by, policy.set_at is None) == ("ada", False)


async def test_policies_are_listed_by_topic_after_one_of_them(policies: PostgresPolicyRepo) -> None:
    for topic in ("b", "a", "c"):
        await set_policy(policies, topic, COMPLETED=DAY)

    async def listed(limit: int, after: str = "", topics: list[str] | None = None) -> list[str]:
        found = await policies.list_policies(limit=limit, after=after, topics=topics)
        return [policy.topic for policy in found]

    assert await listed(2) == ["a", "b"]
    assert await listed(2, after="a") == ["b", "c"]
    assert await listed(5, topics=["c", "x"]) == ["c"]


@pytest.mark.parametrize("span", ["59 seconds", "-1 day", "365001 days"])
async def test_database_refuses_a_retention_that_cannot_hold(connection: Connection, span: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "INSERT INTO pulse.topic_policies (topic, canceled_kept) VALUES ('mail', $1::text::interval)",
            span,
        )
