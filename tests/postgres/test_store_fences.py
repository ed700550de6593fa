"""The fence: a claim counts only while job, worker and attempt all match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import LEASE, Store, a_job, failure

Verb = Callable[[Store, Claim], Awaitable[bool]]


async def complete(store: Store, claim: Claim) -> bool:
    return claim in await store.repo.complete_jobs([claim])


async def fail(store: Store, claim: Claim) -> bool:
    return claim in await store.repo.fail_jobs([failure(claim)])


async def extend(store: Store, claim: Claim) -> bool:
    return claim in (await store.repo.extend_leases([claim], LEASE)).extended


async def release(store: Store, claim: Claim) -> bool:
    return claim.job_id in await store.repo.release_jobs([claim])


VERBS: list[Verb] = [complete, fail, extend, release]
ends_or_keeps = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
of_the_original_contract = pytest.mark.parametrize(
    "verb", [complete, fail, extend], ids=lambda verb: verb.__name__
)


@ends_or_keeps
async def test_report_of_the_holder_is_accepted(store: Store, verb: Verb) -> None:
    assert await verb(store, await store.start("A"))


@ends_or_keeps
async def test_report_of_another_worker_is_refused(store: Store, verb: Verb) -> None:
    claim = await store.start("A")
    before = await store.job(claim.job_id)

    assert not await verb(store, claim._replace(worker_id="B"))
    assert await store.job(claim.job_id) == before


@ends_or_keeps
@pytest.mark.parametrize("attempt", [0, 2])
async def test_report_of_another_attempt_is_refused(store: Store, verb: Verb, attempt: int) -> None:
    claim = await store.start("A")
    before = await store.job(claim.job_id)

    assert not await verb(store, claim._replace(attempt=attempt))
    assert await store.job(claim.job_id) == before


@ends_or_keeps
async def test_unknown_job_is_not_held(store: Store, verb: Verb) -> None:
    assert not await verb(store, Claim(new_id(), "A", 1, 1))


@ends_or_keeps
@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.RUNNING])
async def test_report_on_a_job_that_does_not_run_is_refused(
    store: Store, verb: Verb, status: JobStatus
) -> None:
    job_id = await store.reach(status)
    before = await store.job(job_id)

    for claim in (Claim(job_id, "A", 1, 1), Claim(job_id, None, None), Claim(job_id, "A", before.attempts)):
        assert not await verb(store, claim)
    assert await store.job(job_id) == before


@ends_or_keeps
async def test_report_of_a_worker_is_refused_after_its_job_went_to_another(store: Store, verb: Verb) -> None:
    zombie = await store.start("A")
    await store.time.lapse_leases(zombie.job_id)
    await store.repo.reap_expired(10)
    holder = await store.claim_again(zombie.job_id, "B")

    assert not await verb(store, zombie)
    assert await store.repo.current_claims([zombie, holder]) == {holder}


@ends_or_keeps
async def test_report_of_a_worker_on_its_earlier_attempt_is_refused(store: Store, verb: Verb) -> None:
    earlier = await store.start("A")
    await store.time.lapse_leases(earlier.job_id)
    await store.repo.reap_expired(10)
    later = await store.claim_again(earlier.job_id, "A")

    assert later == earlier._replace(attempt=2, run=2)
    assert not await verb(store, earlier)
    assert await store.repo.current_claims([earlier, later]) == {later}


@ends_or_keeps
async def test_refused_claim_leaves_its_neighbors_alone(store: Store, verb: Verb) -> None:
    await store.submit(a_job(), a_job())
    first, second = await store.claim("A", 2)

    assert not await verb(store, first._replace(worker_id="B"))
    assert await verb(store, second)
    assert await store.status(first.job_id) is JobStatus.RUNNING


@of_the_original_contract
@pytest.mark.parametrize(
    "given", [{"worker_id": None, "attempt": None}, {"worker_id": None}, {"attempt": None}]
)
async def test_claim_of_the_original_contract_is_fenced_by_what_it_carries(
    store: Store, verb: Verb, given: dict[str, None]
) -> None:
    claim = await store.start("A")

    assert await verb(store, claim._replace(**given))


@of_the_original_contract
@pytest.mark.parametrize("wrong", [("B", None), (None, 2), (None, 0)])
async def test_claim_of_the_original_contract_is_refused_for_what_it_carries(
    store: Store, verb: Verb, wrong: tuple[str | None, int | None]
) -> None:
    claim = await store.start("A")

    assert not await verb(store, Claim(claim.job_id, *wrong))
    assert await store.status(claim.job_id) is JobStatus.RUNNING


async def test_release_takes_whole_claims_only(store: Store) -> None:
    claim = await store.start("A")

    for part in (claim._replace(worker_id=None), claim._replace(attempt=None)):
        assert await store.repo.release_jobs([part]) == {}
    assert await store.repo.current_claims([claim]) == {claim}


async def test_completion_records_who_finished_and_drops_the_lease(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.complete_jobs([claim])

    job = await store.job(claim.job_id)

    assert (job.status, job.finished_by, job.locked_by, job.lease_until) == (
        JobStatus.COMPLETED,
        "A",
        None,
        None,
    )
    assert job.finished_at is not None
    assert (job.attempts, job.last_error, job.history) == (1, None, ())


async def test_batch_answers_with_exactly_the_claims_that_counted(store: Store) -> None:
    await store.submit(*[a_job() for _ in range(4)])
    first, second, third, fourth = await store.claim("A", 4)
    await store.repo.cancel_jobs([second.job_id], "")
    asked = [fourth, second, third._replace(attempt=9), first, fourth]

    assert set(await store.repo.complete_jobs(asked)) == {first, fourth}


async def test_two_claims_on_one_job_in_a_batch_count_once(store: Store) -> None:
    claim = await store.start("A")

    counted = await store.repo.complete_jobs([claim, Claim(claim.job_id, None, None)])

    assert len(counted) == 1


async def test_two_failures_of_one_job_in_a_batch_count_once(store: Store) -> None:
    claim = await store.start("A")

    assert len(await store.repo.fail_jobs([failure(claim), failure(claim._replace(attempt=None))])) == 1
    assert len((await store.job(claim.job_id)).history) == 1


async def test_zombies_report_in_the_batch_of_the_holder_is_refused_alone(store: Store) -> None:
    zombie = await store.start("A")
    await store.time.lapse_leases(zombie.job_id)
    await store.repo.reap_expired(10)
    holder = await store.claim_again(zombie.job_id, "B")

    assert set(await store.repo.complete_jobs([zombie, holder])) == {holder}
    assert (await store.job(zombie.job_id)).finished_by == "B"


async def test_beat_extends_the_lease_from_now(store: Store) -> None:
    claim = await store.start("A")
    before = await store.job(claim.job_id)

    await store.repo.extend_leases([claim], 2 * LEASE)

    after = await store.job(claim.job_id)
    assert before.lease_until is not None
    assert after.lease_until is not None
    assert after.lease_until - before.lease_until >= LEASE
    assert (after.status, after.attempts) == (JobStatus.RUNNING, 1)


async def test_expired_lease_that_was_not_reaped_can_still_be_extended(store: Store) -> None:
    claim = await store.start("A")
    await store.time.lapse_leases(claim.job_id)

    assert (await store.repo.extend_leases([claim], LEASE)).extended == {claim}
    assert await store.repo.reap_expired(10) == []


async def test_release_gives_the_attempt_back_and_the_job_is_ready(store: Store) -> None:
    claim = await store.start("A")

    assert await store.repo.release_jobs([claim]) == {claim.job_id: "email"}

    job = await store.job(claim.job_id)
    assert (job.status, job.ready, job.attempts) == (JobStatus.RETRYING, True, 0)
    assert (job.locked_by, job.lease_until, job.history) == (None, None, ())
    assert await store.claim("B") == [Claim(claim.job_id, "B", 1, 2)]


@ends_or_keeps
async def test_late_report_on_a_claim_that_was_made_again_is_refused(store: Store, verb: Verb) -> None:
    """The job, the worker and the attempt are the same. The run is not."""
    first = await store.start("A")
    await store.repo.release_jobs([first])
    (again,) = await store.claim("A")

    assert again == first._replace(run=2)
    assert not await verb(store, first)
    assert await store.repo.current_claims([first, again]) == {again}


async def test_caller_without_a_run_is_fenced_by_the_attempt(store: Store) -> None:
    first = await store.start("A")
    await store.repo.release_jobs([first])
    (again,) = await store.claim("A")

    assert await store.repo.current_claims([again._replace(run=None)]) == {again._replace(run=None)}
    assert set(await store.repo.complete_jobs([first._replace(run=None)])) == {first._replace(run=None)}


async def test_release_of_what_was_not_read_leaves_what_is_young_or_was_beaten(store: Store) -> None:
    unread, beaten = await store.start("A", confirms=True), await store.start("A", confirms=True)
    await store.repo.extend_leases([beaten], LEASE)

    assert not await store.repo.release_jobs([unread, beaten], unread_for=timedelta(hours=1))
    # Every claim is older than that.
    released = await store.repo.release_jobs([unread, beaten], unread_for=timedelta(hours=-1))

    assert list(released) == [unread.job_id]
    assert (await store.job(unread.job_id)).attempts == 0
    assert (await store.job(beaten.job_id)).status is JobStatus.RUNNING


async def test_confirmation_that_is_stored_too_late_costs_no_attempt(store: Store) -> None:
    """Its worker may have died while the statement waited: no handler has started."""
    await store.submit(a_job(max_attempts=1))
    (claim,) = await store.claim(confirms=True)

    answer = await store.repo.extend_leases([claim], LEASE, confirm_within={claim: timedelta(seconds=-1)})

    assert answer.late == {claim}
    assert not answer.extended
    assert not (await store.job(claim.job_id)).delivered
    await store.time.lapse_leases(claim.job_id)
    await store.repo.reap_expired(100)
    job = await store.job(claim.job_id)
    assert (job.status, job.attempts) == (JobStatus.RETRYING, 0)


async def test_attempt_counts_from_a_confirmation_in_time_on(store: Store) -> None:
    await store.submit(a_job(max_attempts=1))
    (claim,) = await store.claim(confirms=True)

    answer = await store.repo.extend_leases([claim], LEASE, confirm_within={claim: LEASE})
    assert answer.extended == {claim}
    late = await store.repo.extend_leases([claim], LEASE, confirm_within={claim: -LEASE})

    assert late.extended == {claim}  # it was confirmed before
    assert (await store.job(claim.job_id)).delivered


async def test_start_that_was_confirmed_too_late_is_taken_back(store: Store) -> None:
    """The commit took longer than the start may wait: no handler starts on it."""
    await store.submit(a_job(max_attempts=1))
    (claim,) = await store.claim(confirms=True)
    answer = await store.repo.extend_leases([claim], LEASE, confirm_within={claim: LEASE})

    await store.repo.take_back_starts(answer.confirmed_until)

    assert not (await store.job(claim.job_id)).delivered
    assert await store.repo.current_claims([claim]) == {claim}


async def test_start_that_was_confirmed_again_is_not_taken_back(store: Store) -> None:
    """The worker repeated its call at another server and has started the handler."""
    (claim,) = [await store.start(confirms=True)]
    first = await store.repo.extend_leases([claim], LEASE, confirm_within={claim: LEASE})
    await store.repo.extend_leases([claim], 2 * LEASE, confirm_within={claim: LEASE})

    await store.repo.take_back_starts(first.confirmed_until)

    assert (await store.job(claim.job_id)).delivered


async def test_empty_batch_is_no_work(store: Store) -> None:
    assert not await store.repo.complete_jobs([])
    assert not await store.repo.fail_jobs([])
    assert not any(await store.repo.extend_leases([], LEASE))
    assert not await store.repo.release_jobs([])
