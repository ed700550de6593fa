"""Settings of topics decide how long finished jobs are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import pytest

from pulse.topic_settings import Keep
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import TERMINAL, JobStatus
from pulse_server.topics.rules import KEPT as ENTRIES
from pulse_server.topics.rules import Kept
from pulse_server.topics.store import PostgresTopicSettings
from pulse_server.work.retention import ExpiredJobs
from tests.fakes.store import Store
from tests.postgres.completed_jobs import put_back
from tests.postgres.sessions import Connection

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK, MONTH = 7 * DAY, 30 * DAY
KEPT: dict[JobStatus, Kept] = dict.fromkeys(TERMINAL, WEEK)
FOREVER: dict[JobStatus, Kept] = dict.fromkeys(TERMINAL)
FINISHED = sorted(TERMINAL)
ENTRY = {status: name for name, status in ENTRIES.items()}


@dataclass(frozen=True)
class Keeping:
    """A store, its settings of topics and its retention."""

    store: Store
    settings: PostgresTopicSettings
    expired: ExpiredJobs
    connection: Connection

    async def set(self, topic: str, *reset: str, **kept: Keep) -> None:
        await self.settings.set_topic(topic, kept, reset, "ada")

    async def listed(self, limit: int, after: str = "", topics: list[str] | None = None) -> list[str]:
        return [
            each.topic for each in await self.settings.list_topics(limit=limit, after=after, topics=topics)
        ]

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
    yield Keeping(store, PostgresTopicSettings(database), ExpiredJobs(database), connection)
    await database.close()


@pytest.mark.parametrize("status", FINISHED)
async def test_retention_shorter_than_the_setting_deletes_its_topic_alone(
    keeping: Keeping, status: JobStatus
) -> None:
    await keeping.set("short", **{ENTRY[status]: HOUR})
    ids = [
        await keeping.finished(status, topic, ago)
        for topic, ago in (("short", 2 * HOUR), ("short", HOUR / 2), ("other", 2 * HOUR), ("other", 8 * DAY))
    ]
    assert await keeping.left(*ids) == [False, True, True, False]


@pytest.mark.parametrize("status", FINISHED)
async def test_retention_longer_than_the_setting_keeps_its_topic(keeping: Keeping, status: JobStatus) -> None:
    await keeping.set("long", **{ENTRY[status]: MONTH})
    ids = [
        await keeping.finished(status, topic, ago)
        for topic, ago in (("long", 8 * DAY), ("long", 31 * DAY), ("other", 8 * DAY))
    ]
    assert await keeping.left(*ids) == [True, False, False]


@pytest.mark.parametrize("status", FINISHED)
async def test_topic_that_is_kept_forever_loses_nothing(keeping: Keeping, status: JobStatus) -> None:
    await keeping.set("audit", **{ENTRY[status]: "forever"})
    ids = [await keeping.finished(status, "audit", 1000 * DAY), await keeping.finished(status, "o", 8 * DAY)]
    assert await keeping.left(*ids) == [True, False]


async def test_retention_holds_at_a_server_that_keeps_everything_forever(keeping: Keeping) -> None:
    await keeping.set("short", keep_completed=HOUR)
    ids = [await keeping.finished(JobStatus.COMPLETED, topic, 2 * HOUR) for topic in ("short", "other")]
    assert await keeping.left(*ids, kept=FOREVER) == [False, True]


async def test_retention_of_one_status_leaves_the_others_to_the_setting(keeping: Keeping) -> None:
    await keeping.set("mail", keep_completed="forever")
    ids = [await keeping.finished(status, "mail", 8 * DAY) for status in FINISHED]
    assert await keeping.left(*ids) == [status is JobStatus.COMPLETED for status in FINISHED]


async def test_reset_retention_leaves_its_topic_to_the_setting(keeping: Keeping) -> None:
    await keeping.set("mail", keep_completed="forever")
    await keeping.set("mail", "keep_completed")
    assert await keeping.left(await keeping.finished(JobStatus.COMPLETED, "mail", 8 * DAY)) == [False]


async def test_retention_that_is_reset_is_gone(keeping: Keeping) -> None:
    await keeping.set("mail", keep_completed="forever")
    await keeping.set("mail", "keep_completed")
    assert await keeping.listed(10) == []
    assert not await keeping.connection.fetch("SELECT FROM pulse.topic_rules")


async def test_retention_is_read_back_as_it_was_set(keeping: Keeping) -> None:
    await keeping.set("mail", keep_completed="forever", keep_canceled=timedelta(minutes=1))
    await keeping.set("mail", "keep_canceled", keep_dead_lettered=timedelta(days=3650))

    (owners,) = await keeping.settings.read_owners(["mail"])
    assert owners.operator == {"keep_completed": "forever", "keep_dead_lettered": timedelta(days=3650)}
    assert (owners.set_by, owners.set_at is None) == ("ada", False)


async def test_topics_are_listed_by_name_after_one_of_them(keeping: Keeping) -> None:
    for topic in ("b", "a", "c"):
        await keeping.set(topic, keep_completed=DAY)

    assert await keeping.listed(2) == ["a", "b"]
    assert await keeping.listed(2, after="a") == ["b", "c"]
    assert await keeping.listed(5, topics=["c", "x"]) == ["c"]


@pytest.mark.parametrize("span", ["59 seconds", "-1 day", "365001 days"])
async def test_database_refuses_a_retention_that_cannot_hold(connection: Connection, span: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "INSERT INTO pulse.topic_rules (topic, canceled_kept) VALUES ('mail', $1::text::interval)",
            span,
        )
