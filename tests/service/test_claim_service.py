"""Handing jobs out, keeping them, giving them back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server import tuning
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import BeatAnswer
from pulse_server.domain.status import JobStatus
from pulse_server.service.claims import Claims
from tests.fakes.replica import Replica
from tests.fakes.store import a_job, room

TTL = timedelta(seconds=77)
NOTHING_LOST = BeatAnswer([], [])


@pytest.fixture
def claims(replica: Replica) -> Claims:
    return Claims(replica.repo, replica.signals, TTL)


async def test_claim_lasts_one_lease(replica: Replica, claims: Claims) -> None:
    await replica.store.submit(a_job())

    (claimed,) = await claims.claim(["email"], room("A", 3))

    job = await replica.store.job(claimed.id)
    assert job.lease_until is not None
    assert job.started_at is not None
    assert abs(job.lease_until - job.started_at - TTL) < timedelta(seconds=1)


async def test_beat_returns_the_claims_that_are_lost(replica: Replica, claims: Claims) -> None:
    await replica.store.submit(a_job(), a_job(), a_job())
    held, finished, other = await replica.store.claim(count=3)
    await replica.repo.complete_jobs([finished])

    answer = await claims.beat([finished, held, other._replace(worker_id="B")])

    assert answer == BeatAnswer(lost=[finished, other._replace(worker_id="B")], unknown=[])


async def test_beat_extends_by_one_lease(replica: Replica, claims: Claims) -> None:
    claim = await replica.store.start()
    await replica.store.time.lapse_leases(claim.job_id)

    assert await claims.beat([claim]) == NOTHING_LOST

    lease_until = (await replica.store.job(claim.job_id)).lease_until
    assert lease_until is not None
    assert timedelta(0) < lease_until - replica.repo.clock.now() <= TTL


async def test_beat_of_nothing_asks_nobody(replica: Replica, claims: Claims) -> None:
    assert await claims.beat([]) == NOTHING_LOST
    assert replica.repo.calls == []


async def test_large_beat_goes_out_in_batches(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "HEARTBEAT_BATCH", 2)
    await replica.store.submit(*[a_job() for _ in range(5)])
    held = await replica.store.claim(count=5)
    await replica.repo.cancel_jobs([held[4].job_id], "")
    replica.repo.calls.clear()

    answer = await Claims(replica.repo, replica.signals, TTL).beat(held)

    assert answer == BeatAnswer(lost=[held[4]], unknown=[])
    assert replica.repo.calls == ["extend_leases"] * 3 + ["current_claims"]


async def test_outage_loses_no_lease_but_is_raised(replica: Replica, claims: Claims) -> None:
    claim = await replica.store.start()
    replica.repo.is_away = True

    with pytest.raises(Unavailable):
        await claims.beat([claim])


async def test_release_wakes_dispatch_for_what_went_back(replica: Replica, claims: Claims) -> None:
    held = await replica.store.start(topic="email")
    finished = await replica.store.start(topic="sms")
    await replica.repo.complete_jobs([finished])

    assert await claims.release([held, finished]) == (1, [])
    assert replica.dispatcher.woken == [{"email"}]
    assert await replica.store.status(held.job_id) is JobStatus.RETRYING


async def test_release_of_lost_claims_wakes_nobody(replica: Replica, claims: Claims) -> None:
    claim = await replica.store.start()
    await replica.repo.complete_jobs([claim])

    assert await claims.release([claim]) == (0, [])
    assert replica.dispatcher.woken == []


async def test_still_held_are_the_claims_that_hold(replica: Replica, claims: Claims) -> None:
    claim = await replica.store.start()

    assert await claims.still_held([claim, claim._replace(attempt=2)]) == {claim}


async def test_topics_with_ready_jobs_are_asked_of_the_store(replica: Replica, claims: Claims) -> None:
    await replica.store.submit(a_job("email"))

    assert await claims.topics_with_ready_jobs({"email", "sms"}) == {"email"}
