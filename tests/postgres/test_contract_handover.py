"""hand_over_jobs, in memory and in Postgres: a submit and a claim in one, with the rules of both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.domain.jobs import Claim, Submitted
from pulse_server.domain.status import JobStatus
from pulse_server.repos.jobs import Taker
from tests.fakes.store import LEASE, Store, a_job

A = Taker("A", confirms=True)
OLD = Taker("old", confirms=False)


async def test_job_with_a_taker_runs_there_from_the_start(store: Store) -> None:
    job = a_job()

    assert await store.repo.hand_over_jobs([job], [A], LEASE) == [Submitted(job.id, False, is_taken=True)]

    stored = await store.job(job.id)
    assert (stored.status, stored.locked_by, stored.attempts) == (JobStatus.RUNNING, "A", 1)
    assert not stored.ready
    assert stored.started_at is not None
    assert await store.claim(count=10) == []


async def test_claim_of_what_was_handed_over_is_a_claim_like_any_other(store: Store) -> None:
    job = a_job()
    await store.repo.hand_over_jobs([job], [A], LEASE)
    claim = Claim(job.id, "A", 1)

    assert await store.repo.extend_leases([claim], LEASE) == {claim}
    assert claim._replace(worker_id="B") not in await store.repo.complete_jobs([Claim(job.id, "B", 1)])
    assert claim in await store.repo.complete_jobs([claim])


async def test_job_without_a_taker_waits_beside_one_that_has_one(store: Store) -> None:
    jobs = [a_job(), a_job()]

    answers = await store.repo.hand_over_jobs(jobs, [None, A], LEASE)

    assert answers == [Submitted(jobs[0].id, False), Submitted(jobs[1].id, False, is_taken=True)]
    assert [claim.job_id for claim in await store.claim(count=10)] == [jobs[0].id]


async def test_job_goes_behind_those_that_wait_in_its_topic(store: Store) -> None:
    (waiting,) = await store.submit(a_job())
    late, elsewhere = a_job(priority=-1), a_job("sms")

    answers = await store.repo.hand_over_jobs([late, elsewhere], [A, A], LEASE)

    assert answers == [Submitted(late.id, False), Submitted(elsewhere.id, False, is_taken=True)]
    assert [claim.job_id for claim in await store.claim(count=10)] == [waiting, late.id]


@pytest.mark.parametrize(
    "start", [{"delay": timedelta(hours=1)}, {"run_at": datetime(2020, 1, 1, tzinfo=UTC)}]
)
async def test_job_that_names_its_start_is_never_handed_over(store: Store, start: dict[str, object]) -> None:
    job = a_job(**start)

    assert await store.repo.hand_over_jobs([job], [A], LEASE) == [Submitted(job.id, False)]


async def test_repeated_submit_hands_nothing_over_twice(store: Store) -> None:
    job, keyed = a_job(), a_job(idempotency_key="k")
    await store.repo.hand_over_jobs([job, keyed], [A, A], LEASE)
    again = keyed._replace(id=a_job().id)
    fresh = a_job()

    answers = await store.repo.hand_over_jobs([job, again, fresh], [OLD, OLD, OLD], LEASE)

    assert answers == [
        Submitted(job.id, True),
        Submitted(keyed.id, True),
        Submitted(fresh.id, False, is_taken=True),
    ]
    assert (await store.job(job.id)).locked_by == "A"


@pytest.mark.parametrize(
    ("taker", "max_attempts", "delivered"), [(A, 1, False), (A, 2, False), (OLD, 1, True)]
)
async def test_attempt_of_a_job_that_was_handed_over_counts_from_its_first_beat(
    store: Store, taker: Taker, max_attempts: int, delivered: bool
) -> None:
    job = a_job(max_attempts=max_attempts)
    await store.repo.hand_over_jobs([job], [taker], LEASE)

    assert (await store.job(job.id)).delivered is delivered
