"""reap_expired and promote_due: what time does to jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.jobs.reports import Promotion, Turn
from pulse_server.jobs.rules import JobStatus, Outcome, Reaped
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.retry_delays import retry_delay


async def test_lease_that_holds_is_not_reaped(store: Store) -> None:
    claim = await store.start("A")

    assert await store.repo.reap_expired(10) == []
    assert await store.repo.current_claims([claim]) == {claim}


async def test_lapsed_attempt_is_spent_and_retried_with_backoff(store: Store) -> None:
    claim = await store.start("A")
    await store.time.lapse_leases(claim.job_id)

    assert await store.repo.reap_expired(10) == [Reaped(claim, "email", JobStatus.RETRYING, True)]

    job = await store.job(claim.job_id)
    assert (job.status, job.ready, job.attempts) == (JobStatus.RETRYING, False, 1)
    assert (job.locked_by, job.lease_until, job.last_error) == (None, None, "worker lease expired")
    (entry,) = job.history
    assert (entry.attempt, entry.worker_id, entry.outcome, entry.error) == (
        1,
        "A",
        Outcome.LEASE_EXPIRED,
        "worker lease expired",
    )
    assert abs(job.next_run_at - entry.ended_at - retry_delay(1)) < timedelta(seconds=1)


async def test_lapsed_last_attempt_goes_to_the_dead_letters(store: Store) -> None:
    claim = await store.start("A", max_attempts=1)
    await store.time.lapse_leases(claim.job_id)

    assert await store.repo.reap_expired(10) == [Reaped(claim, "email", JobStatus.DEAD_LETTERED, True)]

    job = await store.job(claim.job_id)
    assert (job.attempts, job.last_error, job.finished_by) == (1, "worker lease expired", "A")
    assert job.finished_at is not None


async def test_attempt_that_never_reached_a_worker_is_given_back(store: Store) -> None:
    claim = await store.start("A", confirms=True, max_attempts=1)
    await store.time.lapse_leases(claim.job_id)

    assert await store.repo.reap_expired(10) == [Reaped(claim, "email", JobStatus.RETRYING, False)]

    job = await store.job(claim.job_id)
    assert (job.status, job.attempts, job.finished_at) == (JobStatus.RETRYING, 0, None)


async def test_undelivered_job_never_dies_however_often_its_lease_lapses(store: Store) -> None:
    claim = await store.start("A", confirms=True, max_attempts=1)
    for _ in range(4):
        await store.time.lapse_leases(claim.job_id)
        (reaped,) = await store.repo.reap_expired(10)
        assert reaped.status is JobStatus.RETRYING
        claim = await store.claim_again(claim.job_id, "A", confirms=True)
        assert claim.attempt == 1


async def test_confirmed_last_attempt_that_lapses_is_spent(store: Store) -> None:
    claim = await store.start("A", confirms=True, max_attempts=1)
    await store.repo.extend_leases([claim], LEASE)
    await store.time.lapse_leases(claim.job_id)

    (reaped,) = await store.repo.reap_expired(10)

    assert (reaped.status, reaped.delivered) == (JobStatus.DEAD_LETTERED, True)


async def test_oldest_lapses_are_reaped_first_and_no_more_than_the_limit(store: Store) -> None:
    await store.submit(*[a_job() for _ in range(3)])
    first, second, third = await store.claim(count=3)
    await store.time.lapse_leases(third.job_id, first.job_id, second.job_id)

    reaped = await store.repo.reap_expired(2)

    assert {entry.claim for entry in reaped} == {third, first}
    assert [entry.claim for entry in await store.repo.reap_expired(2)] == [second]
    assert await store.repo.reap_expired(2) == []


async def test_lease_that_was_alive_at_the_given_moment_is_not_reaped(store: Store) -> None:
    before = await store.repo.database_now()
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    lapsed = (await store.job(claim.job_id)).lease_until
    assert lapsed is not None

    assert await store.repo.reap_expired(10, min(before, lapsed)) == []
    assert len(await store.repo.reap_expired(10, lapsed + timedelta(seconds=1))) == 1


async def test_nothing_waiting_means_nothing_due(store: Store) -> None:
    await store.submit(a_job())  # ready at once
    await store.start("A", topic="sms")

    assert await store.repo.promote_due(10) == Promotion(0, frozenset(), None)


async def test_promoter_learns_when_the_next_job_is_due(store: Store) -> None:
    await store.submit(a_job(delay=timedelta(hours=5)), a_job(delay=timedelta(hours=2)))

    promotion = await store.repo.promote_due(10)

    assert (promotion.promoted, promotion.topics) == (0, frozenset())
    assert promotion.next_due_in is not None
    assert timedelta(hours=1, minutes=50) < promotion.next_due_in <= timedelta(hours=2)


async def test_due_jobs_become_ready_and_their_topics_are_returned(store: Store) -> None:
    delayed, other = a_job("sms", delay=timedelta(hours=1)), a_job("push", delay=timedelta(hours=1))
    await store.submit(delayed, other)
    failed = await store.start("A")
    await store.repo.fail_jobs([failure(failed)])
    await store.time.make_due(failed.job_id, delayed.id)

    promotion = await store.repo.promote_due(10)

    assert (promotion.promoted, promotion.topics) == (2, frozenset({"email", "sms"}))
    assert promotion.next_due_in is not None
    assert (await store.job(delayed.id)).status is JobStatus.PENDING
    assert (await store.job(failed.job_id)).status is JobStatus.RETRYING
    assert {claim.job_id for claim in await store.claim(count=9, topics=["email", "sms", "push"])} == {
        delayed.id,
        failed.job_id,
    }


async def test_longest_due_jobs_are_promoted_first_and_no_more_than_the_limit(store: Store) -> None:
    jobs = [a_job(delay=timedelta(hours=1)) for _ in range(3)]
    await store.submit(*jobs)
    await store.time.make_due(jobs[2].id, jobs[0].id, jobs[1].id)

    assert (await store.repo.promote_due(2)).promoted == 2
    assert [(await store.job(job.id)).ready for job in jobs] == [True, False, True]
    assert (await store.repo.promote_due(2)).promoted == 1
    assert (await store.repo.promote_due(2)).promoted == 0


async def test_topics_take_turns_in_promotion(store: Store) -> None:
    due = [a_job(topic, delay=timedelta(hours=1)) for topic in ("b", "b", "b", "d", "e")]
    later = [a_job(topic, delay=timedelta(hours=1)) for topic in ("a", "c", "d")]
    await store.submit(*due, *later)
    await store.time.make_due(*(job.id for job in due))

    async def take_turns(after: str, limit: int = 10, looked_at: int = 10) -> Turn:
        return await store.repo.promote_in_turn(
            limit, of_each_topic=2, after_topic=after, topics_looked_at=looked_at
        )

    assert await take_turns("", looked_at=2) == Turn(frozenset({"b"}), "b")
    assert sum([(await store.job(job.id)).ready for job in due]) == 2
    assert await take_turns("b", limit=1) == Turn(frozenset({"d"}), "d")
    assert await take_turns("d") == Turn(frozenset({"e"}), "")
    assert await take_turns("") == Turn(frozenset({"b"}), "")
    assert await take_turns("") == Turn(frozenset(), "")
    assert not any([(await store.job(job.id)).ready for job in later])


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.COMPLETED, JobStatus.CANCELED])
async def test_only_waiting_jobs_are_promoted(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)
    await store.time.make_due(job_id)

    assert (await store.repo.promote_due(10)).promoted == 0
    assert not (await store.job(job_id)).ready
