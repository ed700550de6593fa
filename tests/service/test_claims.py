"""Claims: take jobs for workers, and give them back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.dispatch.claims import Claims
from pulse_server.jobs.rules import JobStatus
from tests.eventually import eventually
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job, room

TTL = timedelta(seconds=77)


@pytest.fixture
def claims(replica: StoredReplica) -> Claims:
    return Claims(replica.repo, replica.limits, replica.publisher, replica.spared_workers, TTL)


async def test_claim_lasts_one_lease(replica: StoredReplica, claims: Claims) -> None:
    await replica.store.submit(a_job())

    (claimed,) = await claims.claim(["email"], room("A", 3))

    job = await replica.store.job(claimed.id)
    assert job.lease_until is not None
    assert job.started_at is not None
    assert abs(job.lease_until - job.started_at - TTL) < timedelta(seconds=1)


async def test_release_wakes_dispatch_for_what_went_back(replica: StoredReplica, claims: Claims) -> None:
    held = await replica.store.start(topic="email")
    finished = await replica.store.start(topic="sms")
    await replica.repo.complete_jobs([finished])

    assert await claims.release([held, finished]) == (1, [])
    assert replica.roster.woken == [{"email"}]
    assert await replica.store.status(held.job_id) is JobStatus.RETRYING


async def test_release_of_lost_claims_wakes_no_group(replica: StoredReplica, claims: Claims) -> None:
    claim = await replica.store.start()
    await replica.repo.complete_jobs([claim])

    assert await claims.release([claim]) == (0, [])
    assert replica.roster.woken == []


async def test_still_held_are_the_claims_that_hold(replica: StoredReplica, claims: Claims) -> None:
    claim = await replica.store.start()

    assert await claims.still_held([claim, claim._replace(attempt=2)]) == {claim}


async def test_topics_with_ready_jobs_are_asked_of_the_store(replica: StoredReplica, claims: Claims) -> None:
    await replica.store.submit(a_job("email"))

    assert await claims.topics_with_ready_jobs({"email", "sms"}) == {"email"}


async def test_undelivered_jobs_whose_rows_are_locked_are_released_once_they_are_free(
    replica: StoredReplica, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.claims.RELEASE_PAUSE", timedelta(0))
    monkeypatch.setattr("pulse_server.dispatch.claims.RELEASE_TRIES", 1_000_000)
    free, locked = await replica.store.start(), await replica.store.start()

    async with replica.locked(locked.job_id):
        claims.release_soon([free, locked])
        await eventually(lambda: replica.repo.calls.count("release_jobs") > 1)
        assert await replica.store.status(free.job_id) is JobStatus.RETRYING
        assert await replica.store.status(locked.job_id) is JobStatus.RUNNING
    await claims.finish_releases(timedelta(seconds=5))

    assert await replica.store.status(locked.job_id) is JobStatus.RETRYING


async def test_undelivered_jobs_keep_their_leases_if_the_database_is_away(
    replica: StoredReplica, claims: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    held = await replica.store.start()
    replica.repo.is_away = True

    claims.release_soon([held])
    await claims.finish_releases(timedelta(seconds=5))
    replica.repo.is_away = False

    assert [record.message for record in caplog.records] == ["release_failed"]
    assert await replica.store.status(held.job_id) is JobStatus.RUNNING
