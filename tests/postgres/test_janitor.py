"""The janitor: small steps with pauses, and a walk that starts over now and then."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import JobStatus
from pulse_server.topics.rules import Kept
from pulse_server.work.retention import (
    RETENTION_PAUSE,
    RETENTION_SHARE,
    RETENTION_START_OVER,
    ExpiredJobs,
    Janitor,
    Sweep,
)
from tests.fakes.clock import Seconds
from tests.fakes.replica import Replica
from tests.fakes.store import Store
from tests.postgres.completed_jobs import put_back
from tests.postgres.sessions import Connection

DAY = timedelta(days=1)
INTERVAL = timedelta(minutes=5)
KEPT = {JobStatus.COMPLETED: 7 * DAY, JobStatus.DEAD_LETTERED: 30 * DAY}
BATCH = 2


class WatchedJobs(ExpiredJobs):
    """Records where each step begins, and lets each take a given time."""

    def __init__(self, database: Database, seconds: Seconds) -> None:
        super().__init__(database)
        self._seconds = seconds
        self.takes = 0.0
        self.is_taken = False
        self.is_away = False
        self.steps: list[PageKey | None] = []

    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        self.steps.append(after)
        self._seconds.advance(self.takes)
        if self.is_away:
            raise Unavailable("The database did not answer.")
        if self.is_taken:
            return Sweep(is_taken=True)
        return await super().delete_expired(kept, after=after, limit=limit)


class Finished:
    """Jobs that finished some time ago, all in pulse.jobs."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self.store = store
        self._connection = connection

    async def add(self, *days_ago: int, status: JobStatus = JobStatus.COMPLETED) -> None:
        for days in days_ago:
            job_id = await self.store.reach(status)
            await self.age(job_id, submitted=days * DAY, finished=days * DAY)

    async def age(self, job_id: str, *, submitted: timedelta, finished: timedelta) -> None:
        await self.store.time.age(job_id, submitted=submitted, finished=finished)
        await put_back(self._connection, job_id)

    async def count(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM pulse.jobs"))


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.work.retention.RETENTION_BATCH", BATCH)


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture
def finished(store: Store, connection: Connection) -> Finished:
    return Finished(store, connection)


@pytest.fixture
async def expired(shared_dsn: str, finished: Finished, seconds: Seconds) -> AsyncIterator[WatchedJobs]:
    database = Database(shared_dsn)
    yield WatchedJobs(database, seconds)
    await database.close()


@pytest.fixture
def janitor(expired: WatchedJobs, seconds: Seconds, replica: Replica) -> Janitor:
    return Janitor(expired, replica.publisher, KEPT, interval=INTERVAL, clock=seconds)


async def run_pass(janitor: Janitor) -> None:
    while await janitor.tick() < INTERVAL:
        continue


async def test_pass_rests_after_each_step_and_ends_at_jobs_that_are_too_young(
    finished: Finished, janitor: Janitor, expired: WatchedJobs
) -> None:
    await finished.add(20, 19, 18, 17, 16, 1)

    rests = [await janitor.tick() for _ in range(3)]

    assert rests == [RETENTION_PAUSE, RETENTION_PAUSE, INTERVAL]
    assert await finished.count() == 1


async def test_statements_take_no_more_than_their_share_of_the_time(
    finished: Finished, janitor: Janitor, expired: WatchedJobs
) -> None:
    await finished.add(20, 19, 18)
    expired.takes = 2.0

    rest = await janitor.tick()
    assert expired.takes / (expired.takes + rest.total_seconds()) == RETENTION_SHARE


async def test_next_pass_goes_on_where_the_last_one_ended(
    finished: Finished, janitor: Janitor, expired: WatchedJobs
) -> None:
    await finished.add(20, 19, 18, status=JobStatus.DEAD_LETTERED)
    await run_pass(janitor)
    looked_at = len(expired.steps)

    await run_pass(janitor)

    assert len(expired.steps) == looked_at + 1
    assert expired.steps[-1] is not None


async def test_job_that_was_alive_when_it_was_passed_is_found_when_the_walk_starts_over(
    finished: Finished, janitor: Janitor, expired: WatchedJobs, seconds: Seconds
) -> None:
    claim = await finished.store.start()
    await finished.store.time.age(claim.job_id, submitted=20 * DAY)
    await finished.add(19, status=JobStatus.DEAD_LETTERED)
    await run_pass(janitor)
    await finished.store.repo.complete_jobs([claim])
    await finished.age(claim.job_id, submitted=21 * DAY, finished=8 * DAY)

    await run_pass(janitor)
    assert await finished.store.repo.get_job(claim.job_id) is not None

    seconds.advance(RETENTION_START_OVER.total_seconds())
    await run_pass(janitor)  # the last one that goes on
    await run_pass(janitor)
    assert None in expired.steps[-2:]
    assert await finished.store.repo.get_job(claim.job_id) is None


async def test_pass_is_left_to_the_replica_that_is_at_it(
    finished: Finished, janitor: Janitor, expired: WatchedJobs
) -> None:
    await finished.add(20, 19, 18)
    expired.is_taken = True

    assert await janitor.tick() == INTERVAL
    assert await finished.count() == 3


async def test_outage_in_the_middle_costs_no_ground(
    finished: Finished, janitor: Janitor, expired: WatchedJobs
) -> None:
    await finished.add(20, 19, 18, 17)
    await janitor.tick()
    expired.is_away = True
    with pytest.raises(Unavailable):
        await janitor.tick()
    expired.is_away = False

    await run_pass(janitor)

    assert expired.steps[1] == expired.steps[2]
    assert await finished.count() == 0


async def test_pass_logs_its_deletions_once_and_counts_them(
    finished: Finished, janitor: Janitor, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    await finished.add(20, 19, 18)
    await finished.add(40, status=JobStatus.DEAD_LETTERED)

    with caplog.at_level(logging.INFO):
        await run_pass(janitor)
        await run_pass(janitor)

    (logged,) = [vars(record) for record in caplog.records if record.message == "jobs_deleted"]
    assert (logged["COMPLETED"], logged["DEAD_LETTERED"]) == (3, 1)
    assert replica.metrics.deleted.values == {
        ("COMPLETED", "retention"): 3,
        ("DEAD_LETTERED", "retention"): 1,
    }


async def test_one_statement_an_interval_is_sent_if_everything_is_kept_forever(
    replica: Replica, expired: WatchedJobs
) -> None:
    """A topic may have settings, which the statement reads."""
    assert await Janitor(expired, replica.publisher, {}, interval=INTERVAL).tick() == INTERVAL
    assert expired.steps == [None]
