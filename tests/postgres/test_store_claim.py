"""claim_batch: who gets what, and in which order."""

from __future__ import annotations

import pytest

from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import LEASE, Store, a_job, room


async def test_higher_priority_goes_first_and_ties_go_in_order_of_submission(store: Store) -> None:
    jobs = [a_job(priority=priority) for priority in (0, 5, 0, -3, 5)]
    for job in jobs:
        await store.submit(job)

    claimed = await store.repo.claim_batch(["email"], room("A", 5), LEASE)

    assert [job.id for job in claimed] == [jobs[index].id for index in (1, 4, 0, 2, 3)]


async def test_jobs_of_one_batch_go_in_the_order_of_the_batch(store: Store) -> None:
    jobs = [a_job() for _ in range(50)]
    await store.submit(*reversed(jobs))  # against the order of their ids

    assert [claim.job_id for claim in await store.claim(count=50)] == [job.id for job in reversed(jobs)]


async def test_topics_are_merged_by_priority_then_age(store: Store) -> None:
    jobs = [
        a_job(topic, priority=priority)
        for topic, priority in [("a", 1), ("b", 2), ("c", 1), ("a", 3), ("b", 1)]
    ]
    await store.submit(*jobs)

    claimed = await store.repo.claim_batch(["a", "b", "c"], room("A", 4), LEASE)

    assert [job.id for job in claimed] == [jobs[index].id for index in (3, 1, 0, 2)]
    assert [job.topic for job in claimed] == ["a", "b", "a", "c"]


async def test_other_topics_are_left_alone(store: Store) -> None:
    await store.submit(a_job("email"), a_job("sms"))

    assert len(await store.claim(count=10, topics=["email", "push"])) == 1
    assert await store.claim(count=10, topics=["email", "push"]) == []


async def test_best_jobs_go_to_the_slots_in_their_order(store: Store) -> None:
    jobs = [a_job(priority=priority) for priority in (9, 8, 7)]
    await store.submit(*jobs)
    slots = Slots(["A", "B"], [False, False], [1, 0, 1, 0, 0])

    claimed = await store.repo.claim_batch(["email"], slots, LEASE)

    assert [(job.id, job.worker_id) for job in claimed] == [
        (jobs[0].id, "B"),
        (jobs[1].id, "A"),
        (jobs[2].id, "B"),
    ]
    assert [(await store.job(job.id)).locked_by for job in claimed] == ["B", "A", "B"]


@pytest.mark.parametrize("topics", [["email"], ["email", "sms"]], ids=["one topic", "two topics"])
@pytest.mark.parametrize(
    ("jobs", "packed_bytes", "workers"),
    [(4, 100, "AABB"), (5, 100, "AABB"), (3, 100, "BAB"), (4, 6, "BABA"), (4, 7, "AABB")],
    ids=["all slots", "more", "fewer", "large payloads", "small payloads"],
)
async def test_claim_that_fills_all_slots_goes_by_the_packed_order(
    store: Store, topics: list[str], jobs: int, packed_bytes: int, workers: str
) -> None:
    await store.submit(*[a_job(payload=b"{}") for _ in range(jobs)])
    slots = Slots(["A", "B"], [False, True], [1, 0, 1, 0], packed=[0, 0, 1, 1], packed_bytes=packed_bytes)

    claimed = await store.repo.claim_batch(topics, slots, LEASE)

    assert "".join(job.worker_id for job in claimed) == workers
    rows = [await store.job(job.id) for job in claimed]
    assert "".join(job.locked_by or "" for job in rows) == workers
    assert [job.delivered for job in rows] == [worker == "A" for worker in workers]


async def test_no_more_than_the_slots_are_claimed(store: Store) -> None:
    await store.submit(*[a_job() for _ in range(5)])

    assert len(await store.claim(count=2)) == 2
    assert len(await store.claim(count=10)) == 3


async def test_claimed_job_carries_what_its_worker_needs(store: Store) -> None:
    job = a_job(payload=b"p\x00", priority=4, max_attempts=2, idempotency_key="k", metadata={"a": "b"})
    plain = a_job()
    await store.submit(job, plain)

    claimed, unadorned = await store.repo.claim_batch(["email"], room("A", 2), LEASE)

    assert claimed[:10] == (job.id, "email", b"p\x00", 1, 1, 4, 2, {"a": "b"}, "k", "A")
    assert (unadorned.metadata, unadorned.idempotency_key) == (None, None)


async def test_claim_starts_an_attempt_under_a_lease(store: Store) -> None:
    claim = await store.start("A")

    job = await store.job(claim.job_id)

    assert (job.status, job.attempts, job.locked_by, job.ready) == (JobStatus.RUNNING, 1, "A", False)
    assert job.started_at is not None
    assert job.lease_until is not None
    assert abs(job.lease_until - job.started_at - LEASE).total_seconds() < 1


async def test_running_job_is_not_claimed_again(store: Store) -> None:
    await store.start("A")

    assert await store.claim("B") == []


@pytest.mark.parametrize(
    ("confirms", "attempts_before", "max_attempts", "confirm"),
    [
        (False, 0, 5, False),  # a worker that cannot confirm
        (False, 1, 2, False),
        (True, 0, 5, False),  # a first attempt with others to follow
        (True, 0, 1, True),  # the only attempt
        (True, 1, 5, True),  # a later attempt
        (True, 1, 2, True),  # the last attempt
    ],
)
async def test_attempt_counts_from_its_first_beat_which_a_later_or_last_one_needs_before_it_starts(
    store: Store, confirms: bool, attempts_before: int, max_attempts: int, confirm: bool
) -> None:
    (job_id,) = await store.submit(a_job(max_attempts=max_attempts))
    for _ in range(attempts_before):
        assert await store.claim()
        await store.time.lapse_leases(job_id)
        assert await store.repo.reap_expired(1)
        await store.time.make_due(job_id)
        await store.repo.promote_due(1)

    (claimed,) = await store.repo.claim_batch(["email"], room("A", 1, confirms=confirms), LEASE)

    assert claimed.attempt == attempts_before + 1
    assert claimed.confirm is confirm
    assert (await store.job(job_id)).delivered is not confirms


async def test_first_attempt_that_was_lost_costs_nothing_once_and_is_confirmed_from_then_on(
    store: Store,
) -> None:
    """It may have started, and killed its worker: else it would do so for ever."""
    (job_id,) = await store.submit(a_job(max_attempts=5))
    confirms, attempts = [], []
    for _ in range(3):
        (claimed,) = await store.repo.claim_batch(["email"], room("A", 1, confirms=True), LEASE)
        confirms.append(claimed.confirm)
        if claimed.confirm:
            await store.repo.extend_leases([claimed.claim], LEASE)
        await store.time.lapse_leases(job_id)
        assert await store.repo.reap_expired(1)
        attempts.append((await store.job(job_id)).attempts)
        await store.time.make_due(job_id)
        await store.repo.promote_due(1)
    assert confirms == [False, True, True]
    assert attempts == [0, 1, 2]


async def test_job_released_before_its_first_attempt_started_needs_no_confirmation(store: Store) -> None:
    (job_id,) = await store.submit(a_job(max_attempts=5))
    for _ in range(2):
        (claimed,) = await store.repo.claim_batch(["email"], room("A", 1, confirms=True), LEASE)
        assert (claimed.attempt, claimed.confirm) == (1, False)
        await store.repo.release_jobs([claimed.claim])
    assert (await store.job(job_id)).started_at is None


async def test_job_that_was_lost_with_a_worker_needs_confirmation_after_a_release_too(store: Store) -> None:
    """Else it could kill one worker after the other: each death within its first moments costs no attempt."""
    claim = await store.start("A", confirms=True, max_attempts=5)
    await store.time.lapse_leases(claim.job_id)
    await store.repo.reap_expired(1)
    await store.time.make_due(claim.job_id)
    await store.repo.promote_due(1)

    for _ in range(2):
        (claimed,) = await store.repo.claim_batch(["email"], room("B", 1, confirms=True), LEASE)
        assert (claimed.attempt, claimed.confirm) == (1, True)
        await store.repo.release_jobs([claimed.claim])


async def test_confirmation_is_asked_of_the_workers_that_can_give_it(store: Store) -> None:
    await store.submit(a_job(max_attempts=1), a_job(max_attempts=1))
    slots = Slots(["old", "new"], [False, True], [0, 1])

    claimed = await store.repo.claim_batch(["email"], slots, LEASE)

    assert [(job.worker_id, job.confirm) for job in claimed] == [("old", False), ("new", True)]


async def test_beat_confirms_the_delivery(store: Store) -> None:
    claim = await store.start("A", confirms=True, max_attempts=1)

    await store.repo.extend_leases([claim], LEASE)

    assert (await store.job(claim.job_id)).delivered


async def test_empty_queue_yields_nothing(store: Store) -> None:
    assert await store.repo.claim_batch(["email"], room("A", 3), LEASE) == []


async def test_released_job_goes_ahead_of_younger_ones(store: Store) -> None:
    older, younger = a_job(), a_job()
    await store.submit(older, younger)
    (claim,) = await store.claim()
    await store.repo.release_jobs([claim])

    assert await store.claim("B", 2) == [Claim(older.id, "B", 1, 2), Claim(younger.id, "B", 1, 1)]


async def test_claim_ends_once_its_payloads_fill_the_budget(store: Store) -> None:
    ids = await store.submit(*(a_job(payload=bytes(size)) for size in (300, 300, 500, 100, 2000)))
    slots = room("A", 5)._replace(most_bytes=1000)

    first = await store.repo.claim_batch(["email"], slots, LEASE)
    second = await store.repo.claim_batch(["email"], slots, LEASE)

    assert [job.id for job in first] == ids[:3]
    assert [job.id for job in second] == ids[3:]
    assert slots.is_filled_by(first)


async def test_claim_takes_one_job_however_large_it_is(store: Store) -> None:
    ids = await store.submit(a_job(payload=bytes(5000)), a_job(payload=b""))
    slots = room("A", 5)._replace(most_bytes=1)

    assert [job.id for job in await store.repo.claim_batch(["email"], slots, LEASE)] == ids[:1]
