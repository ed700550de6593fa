"""delete_expired: what has been kept long enough goes, and nothing else.

These are the rows of pulse.jobs, where completed jobs are if they are older than the partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.jobs.rules import TERMINAL, JobStatus
from pulse_server.work.retention import ExpiredJobs, Sweep
from tests.fakes.store import Store, a_job
from tests.postgres.completed_jobs import put_back
from tests.postgres.sessions import Connection

DAY = timedelta(days=1)
WEEK, MONTH = 7 * DAY, 30 * DAY
KEPT = {JobStatus.COMPLETED: WEEK, JobStatus.CANCELED: WEEK, JobStatus.DEAD_LETTERED: MONTH}
FINISHED = sorted(TERMINAL)
ALIVE = sorted(set(JobStatus) - TERMINAL)


@dataclass(frozen=True)
class Keeping:
    """A store and its retention."""

    store: Store
    expired: ExpiredJobs
    connection: Connection

    async def sweep(
        self, kept: dict[JobStatus, timedelta] = KEPT, after: PageKey | None = None, limit: int = 100
    ) -> Sweep:
        return await self.expired.delete_expired(kept, after=after, limit=limit)

    async def finished(self, status: JobStatus, ago: timedelta, submitted: timedelta | None = None) -> str:
        """A job that came to its end that long ago, an hour after it was submitted by default."""
        job_id = await self.store.reach(status)
        await self.store.time.age(job_id, submitted=submitted or ago + DAY / 24, finished=ago)
        await put_back(self.connection, job_id)
        return job_id

    async def is_there(self, job_id: str) -> bool:
        return await self.store.repo.get_job(job_id) is not None


@pytest.fixture
async def keeping(store: Store, connection: Connection, shared_dsn: str) -> AsyncIterator[Keeping]:
    database = Database(shared_dsn)
    yield Keeping(store, ExpiredJobs(database), connection)
    await database.close()


@pytest.mark.parametrize("status", FINISHED)
async def test_finished_job_is_deleted_when_its_time_is_over(keeping: Keeping, status: JobStatus) -> None:
    old = await keeping.finished(status, KEPT[status] + DAY)
    young = await keeping.finished(status, KEPT[status] - DAY)

    swept = await keeping.sweep()

    assert swept.deleted == {status: 1}
    assert (await keeping.is_there(old), await keeping.is_there(young)) == (False, True)


@pytest.mark.parametrize("status", ALIVE)
async def test_job_that_is_alive_is_never_deleted(keeping: Keeping, status: JobStatus) -> None:
    job_id = await keeping.store.reach(status)
    await keeping.store.time.age(job_id, submitted=1000 * DAY)

    swept = await keeping.sweep()

    assert (swept.looked_at, swept.deleted) == (0, {})
    assert await keeping.store.status(job_id) is status


async def test_job_that_waited_long_is_kept_from_its_end_on(keeping: Keeping) -> None:
    job_id = await keeping.finished(JobStatus.COMPLETED, DAY, submitted=1000 * DAY)

    assert (await keeping.sweep()).deleted == {}
    assert await keeping.is_there(job_id)


@pytest.mark.parametrize("status", FINISHED)
async def test_status_without_a_duration_is_kept_for_ever(keeping: Keeping, status: JobStatus) -> None:
    others = {other: duration for other, duration in KEPT.items() if other is not status}
    kept = await keeping.finished(status, 1000 * DAY)
    gone = [await keeping.finished(other, 1000 * DAY) for other in others]

    assert (await keeping.sweep(others)).deleted == dict.fromkeys(others, 1)
    assert await keeping.is_there(kept)
    assert not any([await keeping.is_there(job_id) for job_id in gone])


async def test_walk_goes_on_where_it_stopped_and_ends_where_jobs_are_too_young(keeping: Keeping) -> None:
    ids = [await keeping.finished(JobStatus.COMPLETED, WEEK + (9 - n) * DAY) for n in range(5)]
    await keeping.finished(JobStatus.COMPLETED, DAY)

    first = await keeping.sweep(limit=2)
    assert (first.looked_at, first.deleted) == (2, {JobStatus.COMPLETED: 2})
    assert [await keeping.is_there(job_id) for job_id in ids] == [False, False, True, True, True]

    second = await keeping.sweep(after=first.reached, limit=2)
    assert second.reached is not None
    assert second.reached.id == ids[3]

    last = await keeping.sweep(after=second.reached, limit=2)
    assert (last.looked_at, last.deleted) == (1, {JobStatus.COMPLETED: 1})
    assert await keeping.sweep(after=last.reached, limit=2) == Sweep()


async def test_jobs_of_one_moment_are_each_looked_at_once(keeping: Keeping) -> None:
    ids = sorted([await keeping.finished(JobStatus.DEAD_LETTERED, WEEK) for _ in range(4)])
    for job_id in ids:
        await keeping.store.time.age(job_id, submitted=WEEK, finished=WEEK)

    seen, after = 0, None
    while (swept := await keeping.sweep(KEPT | {JobStatus.COMPLETED: DAY}, after, 1)).looked_at:
        seen, after = seen + swept.looked_at, swept.reached

    assert seen == len(ids)


async def test_id_and_key_of_a_deleted_job_are_free_again(keeping: Keeping) -> None:
    job = a_job(idempotency_key="once")
    (job_id,) = await keeping.store.submit(job)
    await keeping.store.repo.cancel_jobs([job_id], "")
    await keeping.store.time.age(job_id, submitted=MONTH, finished=MONTH)

    await keeping.sweep()

    await keeping.store.submit(job)
