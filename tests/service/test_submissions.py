"""Submits: stored first, published second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.errors import AlreadyExists, PulseError, Unavailable
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.work.submissions import Submissions
from tests.fakes.replica import RecordedJobRepo, StoredReplica
from tests.fakes.store import a_job


class SlowInsert:
    """Inserts once the test allows it."""

    def __init__(self, repo: RecordedJobRepo) -> None:
        self.is_asked = asyncio.Event()
        self.may_insert = asyncio.Event()
        self.batches: list[int] = []
        self._insert = repo.insert_jobs
        repo.insert_jobs = self  # type: ignore[assignment]

    async def __call__(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self.batches.append(len(jobs))
        self.is_asked.set()
        await self.may_insert.wait()
        return await self._insert(jobs)


def submissions_of(replica: StoredReplica) -> Submissions:
    return Submissions(replica.repo, replica.hub, replica.publisher)


async def test_submitted_jobs_are_in_the_store(replica: StoredReplica) -> None:
    jobs = [a_job(), a_job()]

    answers = await submissions_of(replica).submit(jobs)

    assert answers == [Submitted(job.id, False) for job in jobs]
    assert {job.id for job in await replica.jobs()} == {job.id for job in jobs}


async def test_dispatch_is_woken_once_for_the_topics_of_a_batch(replica: StoredReplica) -> None:
    await submissions_of(replica).submit([a_job("email"), a_job("sms"), a_job("email")])

    assert replica.roster.woken == [{"email", "sms"}]


async def test_repeated_submit_wakes_dispatch_again(replica: StoredReplica) -> None:
    """The server that stored the job may have died before it woke a dispatcher."""
    job = a_job()
    for _ in range(2):
        await submissions_of(replica).submit([job])

    assert replica.roster.woken == [{"email"}, {"email"}]


async def test_dispatch_is_woken_only_after_the_commit(replica: StoredReplica) -> None:
    slow = SlowInsert(replica.repo)
    submitting = asyncio.create_task(submissions_of(replica).submit([a_job()]))
    await slow.is_asked.wait()

    assert replica.roster.woken == []
    slow.may_insert.set()
    await submitting
    assert replica.roster.woken == [{"email"}]


async def test_delayed_jobs_wake_no_dispatcher(replica: StoredReplica) -> None:
    jobs = [a_job(delay=timedelta(hours=1)), a_job("sms")]

    await submissions_of(replica).submit(jobs)
    await submissions_of(replica).submit([a_job(delay=timedelta(hours=1))])

    assert replica.roster.woken == [{"sms"}]


async def test_each_job_is_answered_for_itself(replica: StoredReplica) -> None:
    submissions = submissions_of(replica)
    taken = a_job()
    await submissions.submit([taken])
    fresh = a_job()

    refused, duplicate, inserted = await submissions.submit([taken._replace(payload=b"x"), taken, fresh])

    assert isinstance(refused, AlreadyExists)
    assert duplicate == Submitted(taken.id, True)
    assert inserted == Submitted(fresh.id, False)


async def test_outage_is_raised_and_wakes_no_dispatcher(replica: StoredReplica) -> None:
    replica.repo.is_away = True

    with pytest.raises(Unavailable):
        await submissions_of(replica).submit([a_job()])
    assert replica.roster.woken == []


async def test_large_request_goes_out_in_batches_and_is_answered_in_order(
    replica: StoredReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.work.submissions.SUBMIT_BATCH", 10)
    slow = SlowInsert(replica.repo)
    slow.may_insert.set()
    jobs = [a_job() for _ in range(25)]

    answers = await submissions_of(replica).submit(jobs)

    assert answers == [Submitted(job.id, False) for job in jobs]
    assert slow.batches == [10, 10, 5]


async def test_nothing_is_submitted_for_nothing(replica: StoredReplica) -> None:
    assert await submissions_of(replica).submit([]) == []
    assert replica.repo.calls == []


async def test_job_with_a_start_time_wakes_dispatch_for_only_the_database_knows_whether_it_has_come(
    replica: StoredReplica,
) -> None:
    await submissions_of(replica).submit([a_job(run_at=datetime(2001, 1, 1, tzinfo=UTC))])

    assert replica.roster.woken == [{"email"}]
