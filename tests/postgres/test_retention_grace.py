"""A shortened retention has a grace time: until it has passed, the longer one counts for all servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from pulse.topic_settings import Entries, Keep
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import TERMINAL, JobStatus
from pulse_server.topics.rules import KEPT as ENTRIES
from pulse_server.topics.rules import Grace, Kept
from pulse_server.topics.store import PostgresTopicSettings
from pulse_server.work.retention import ExpiredJobs
from tests.fakes.store import Store
from tests.postgres.completed_jobs import put_back
from tests.postgres.sessions import Connection

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK, MONTH = 7 * DAY, 30 * DAY
KEPT: dict[JobStatus, Kept] = dict.fromkeys(TERMINAL, WEEK)
DEAD = JobStatus.DEAD_LETTERED
ENTRY = {status: name for name, status in ENTRIES.items()}


class Found(NamedTuple):
    operator: Entries
    before: Entries
    shorter_from: datetime | None
    set_at: datetime | None


@dataclass(frozen=True)
class Graced:
    store: Store
    settings: PostgresTopicSettings
    expired: ExpiredJobs
    """Of another server, which did not take the change."""
    connection: Connection

    async def set(self, *reset: str, **kept: Keep) -> Found:
        await self.settings.set_topic("mail", kept, reset, "ada")
        (found,) = await self.found() or [Found({}, {}, None, None)]
        return found

    async def found(self) -> list[Found]:
        listed = await self.settings.list_topics(limit=9)
        owners = {
            each.topic: each for each in await self.settings.read_owners([each.topic for each in listed])
        }
        return [
            Found(owners[topic].operator, known.before, known.shorter_from, owners[topic].set_at)
            for topic, known in listed
        ]

    async def move(self, by: timedelta) -> None:
        """Let the time pass, for the settings."""
        await self.connection.execute(
            "UPDATE pulse.topic_rules SET shorter_from = shorter_from - $1::interval", by
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
    settings = PostgresTopicSettings(one, Grace(HOUR, dict.fromkeys(ENTRIES, WEEK)))
    yield Graced(store, settings, ExpiredJobs(other), connection)
    await one.close()
    await other.close()


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_shorter_retention_deletes_nothing_before_its_grace_time_has_passed(
    graced: Graced, status: JobStatus
) -> None:
    job = await graced.finished(status, ago=2 * DAY)
    found = await graced.set(**{ENTRY[status]: DAY})

    assert (found.operator, found.before) == ({ENTRY[status]: DAY}, {ENTRY[status]: WEEK})
    assert found.shorter_from is not None
    assert found.set_at is not None
    assert abs(found.shorter_from - found.set_at - HOUR) < timedelta(minutes=1)
    await graced.move(timedelta(minutes=50))
    assert await graced.is_left(job)

    await graced.move(timedelta(minutes=11))
    assert not await graced.is_left(job)
    (found,) = await graced.found()
    assert (found.before, found.shorter_from) == ({}, None)


@pytest.mark.parametrize("undo", ["the same value", "the setting"])
async def test_longer_value_that_is_set_again_within_the_grace_time_loses_nothing(
    graced: Graced, undo: str
) -> None:
    job = await graced.finished(DEAD, ago=2 * DAY)
    await graced.set(keep_dead_lettered=DAY)
    found = await (
        graced.set("keep_dead_lettered") if undo == "the setting" else graced.set(keep_dead_lettered=WEEK)
    )

    assert (found.before, found.shorter_from) == ({}, None)
    await graced.move(2 * HOUR)
    assert await graced.is_left(job)


async def test_same_value_set_again_does_not_begin_the_grace_time_anew(graced: Graced) -> None:
    await graced.set(keep_dead_lettered=DAY)
    await graced.move(timedelta(minutes=50))
    (before,) = await graced.found()

    after = await graced.set(keep_dead_lettered=DAY)

    assert (after.before, after.shorter_from) == ({"keep_dead_lettered": WEEK}, before.shorter_from)


async def test_value_in_between_keeps_what_the_first_one_kept(graced: Graced) -> None:
    job = await graced.finished(DEAD, ago=8 * DAY)
    await graced.set(keep_dead_lettered=MONTH)
    await graced.set(keep_dead_lettered=HOUR)
    found = await graced.set(keep_dead_lettered=WEEK)

    assert found.before == {"keep_dead_lettered": MONTH}
    assert await graced.is_left(job)
    await graced.move(2 * HOUR)
    assert not await graced.is_left(job)


async def test_grace_time_of_one_status_does_not_bring_back_another(graced: Graced) -> None:
    """The statuses share the moment; a value that has taken effect stays in effect."""
    await graced.set(keep_dead_lettered=DAY)
    await graced.move(2 * HOUR)
    found = await graced.set(keep_canceled=DAY)

    assert found.before == {"keep_canceled": WEEK}
    assert not await graced.is_left(await graced.finished(DEAD, ago=2 * DAY))
    assert await graced.is_left(await graced.finished(JobStatus.CANCELED, ago=2 * DAY))


async def test_retention_that_is_reset_counts_until_its_grace_time_has_passed(graced: Graced) -> None:
    job = await graced.finished(DEAD, ago=8 * DAY)
    await graced.set(keep_dead_lettered="forever")
    found = await graced.set("keep_dead_lettered")

    assert (found.operator, found.before) == ({}, {"keep_dead_lettered": "forever"})
    assert await graced.found() == [found]
    assert await graced.is_left(job)

    await graced.move(2 * HOUR)
    assert await graced.found() == []
    assert not await graced.is_left(job)
