"""hand_over_jobs: a submit and a claim in one, with the rules of both.

A job alone has a statement of its own, with the same rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.errors import AlreadyExists, PulseError
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import LEASE, Store, a_job

A = Taker("A", confirms=True)
OLD = Taker("old", confirms=False)

HandOver = Callable[[Store, NewJob, Taker | None], Awaitable[Submitted | PulseError]]


async def alone(store: Store, job: NewJob, taker: Taker | None) -> Submitted | PulseError:
    (answer,) = await store.repo.hand_over_jobs([job], [taker], LEASE)
    return answer


async def beside_another(store: Store, job: NewJob, taker: Taker | None) -> Submitted | PulseError:
    answer, _ = await store.repo.hand_over_jobs([job, a_job("another")], [taker, None], LEASE)
    return answer


in_either_statement = pytest.mark.parametrize("hand_over", [alone, beside_another])


@in_either_statement
async def test_job_with_a_taker_runs_there_from_the_start(store: Store, hand_over: HandOver) -> None:
    job = a_job(priority=7, max_attempts=3, metadata={"a": "1"}, idempotency_key="k", schedule_id=a_job().id)

    assert await hand_over(store, job, A) == Submitted(job.id, False, is_taken=True)

    stored = await store.job(job.id)
    assert (stored.topic, stored.payload, stored.priority, stored.max_attempts) == ("email", b"{}", 7, 3)
    assert (stored.metadata, stored.idempotency_key) == ({"a": "1"}, "k")
    assert stored.schedule_id == job.schedule_id
    assert (stored.status, stored.locked_by, stored.attempts) == (JobStatus.RUNNING, "A", 1)
    assert not stored.ready
    assert stored.started_at is not None
    assert await store.claim(count=10) == []


@in_either_statement
async def test_claim_of_what_was_handed_over_is_a_claim_like_any_other(
    store: Store, hand_over: HandOver
) -> None:
    job = a_job()
    await hand_over(store, job, A)
    claim = Claim(job.id, "A", 1, 1)

    assert (await store.repo.extend_leases([claim], LEASE)).extended == {claim}
    assert claim._replace(worker_id="B") not in await store.repo.complete_jobs([Claim(job.id, "B", 1, 1)])
    assert claim in await store.repo.complete_jobs([claim])


async def test_job_without_a_taker_waits_beside_one_that_has_one(store: Store) -> None:
    jobs = [a_job(), a_job()]

    answers = await store.repo.hand_over_jobs(jobs, [None, A], LEASE)

    assert answers == [Submitted(jobs[0].id, False), Submitted(jobs[1].id, False, is_taken=True)]
    assert [claim.job_id for claim in await store.claim(count=10)] == [jobs[0].id]


@in_either_statement
async def test_job_without_a_taker_waits(store: Store, hand_over: HandOver) -> None:
    job = a_job()

    assert await hand_over(store, job, None) == Submitted(job.id, False)
    assert [claim.job_id for claim in await store.claim(count=10)] == [job.id]


@in_either_statement
async def test_lower_priority_goes_behind_what_waits(store: Store, hand_over: HandOver) -> None:
    (waiting,) = await store.submit(a_job())
    late = a_job(priority=-1)

    assert await hand_over(store, late, A) == Submitted(late.id, False)
    assert [claim.job_id for claim in await store.claim(count=10)] == [waiting, late.id]


async def test_job_goes_behind_those_that_wait_in_its_topic(store: Store) -> None:
    (waiting,) = await store.submit(a_job())
    late, elsewhere = a_job(priority=-1), a_job("sms")

    answers = await store.repo.hand_over_jobs([late, elsewhere], [A, A], LEASE)

    assert answers == [Submitted(late.id, False), Submitted(elsewhere.id, False, is_taken=True)]
    assert [claim.job_id for claim in await store.claim(count=10)] == [waiting, late.id]


@pytest.mark.parametrize(
    "start", [{"delay": timedelta(hours=1)}, {"run_at": datetime(2020, 1, 1, tzinfo=UTC)}]
)
@in_either_statement
async def test_job_that_names_its_start_is_never_handed_over(
    store: Store, hand_over: HandOver, start: dict[str, object]
) -> None:
    job = a_job(**start)

    assert await hand_over(store, job, A) == Submitted(job.id, False)
    assert (await store.job(job.id)).ready is ("run_at" in start)


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


@in_either_statement
async def test_repeat_of_a_job_that_runs_is_a_duplicate_or_refused(store: Store, hand_over: HandOver) -> None:
    job = a_job(idempotency_key="k")
    await hand_over(store, job, A)
    same_key = job._replace(id=a_job().id)

    assert await hand_over(store, job, OLD) == Submitted(job.id, True)
    assert await hand_over(store, same_key, OLD) == Submitted(job.id, True)
    for repeat in (job, same_key):
        assert isinstance(await hand_over(store, repeat._replace(payload=b"other"), OLD), AlreadyExists)
    assert (await store.job(job.id)).locked_by == "A"
    assert await store.claim(count=10) == []


@in_either_statement
@pytest.mark.parametrize(
    ("taker", "max_attempts", "delivered"), [(A, 1, False), (A, 2, False), (OLD, 1, True)]
)
async def test_attempt_of_a_job_that_was_handed_over_counts_from_its_first_beat(
    store: Store, hand_over: HandOver, taker: Taker, max_attempts: int, delivered: bool
) -> None:
    job = a_job(max_attempts=max_attempts)
    await hand_over(store, job, taker)

    assert (await store.job(job.id)).delivered is delivered
