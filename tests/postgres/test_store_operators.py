"""cancel_jobs and retry_jobs: what people do to jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import TERMINAL, WAITING, Claim, JobStatus, Outcome
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.retry_delays import CANCELED_REST

AN_HOUR = timedelta(hours=1)
UNFINISHED = sorted(set(JobStatus) - TERMINAL)


@pytest.mark.parametrize("status", sorted(WAITING))
async def test_waiting_job_is_canceled_without_an_ended_claim(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)
    history = (await store.job(job_id)).history

    (cancellation,) = await store.repo.cancel_jobs([job_id], "not wanted")

    assert cancellation.ended_claim is None
    assert cancellation.job == await store.job(job_id)
    assert (cancellation.job.status, cancellation.job.ready) == (JobStatus.CANCELED, False)
    assert cancellation.job.last_error == "not wanted"
    assert cancellation.job.history == history
    assert cancellation.job.finished_at is not None


async def test_running_job_loses_its_lease_when_it_is_canceled(store: Store) -> None:
    claim = await store.start("A")

    (cancellation,) = await store.repo.cancel_jobs([claim.job_id], "stop")

    assert cancellation.ended_claim == claim
    job = cancellation.job
    assert (job.status, job.locked_by, job.lease_until, job.attempts) == (JobStatus.CANCELED, None, None, 1)
    assert [(entry.attempt, entry.worker_id, entry.outcome, entry.error) for entry in job.history] == [
        (1, "A", Outcome.CANCELED, "stop")
    ]
    assert not any(await store.repo.extend_leases([claim], LEASE))
    assert set(await store.repo.complete_jobs([claim])) == set()


async def test_cancel_without_a_reason_keeps_the_last_error(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.fail_jobs([failure(claim, "the real trouble")])

    (cancellation,) = await store.repo.cancel_jobs([claim.job_id], "")

    assert cancellation.job.last_error == "the real trouble"


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_finished_job_is_not_canceled(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)
    before = await store.job(job_id)

    assert await store.repo.cancel_jobs([job_id], "too late") == []
    assert await store.job(job_id) == before


async def test_canceled_job_is_never_claimed(store: Store) -> None:
    await store.repo.cancel_jobs(await store.submit(a_job()), "")

    assert await store.claim() == []


async def test_unknown_jobs_are_passed_over(store: Store) -> None:
    job_id = await store.reach(JobStatus.PENDING)

    assert await store.repo.retry_jobs([new_id()], 1) == []
    canceled = await store.repo.cancel_jobs([new_id(), job_id], "")
    assert [cancellation.job.id for cancellation in canceled] == [job_id]


@pytest.mark.parametrize("status", [JobStatus.DEAD_LETTERED, JobStatus.CANCELED])
async def test_retried_job_is_ready_and_its_attempts_go_on(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status, max_attempts=1)
    await store.time.age(job_id, submitted=AN_HOUR, finished=CANCELED_REST)

    (job,) = await store.repo.retry_jobs([job_id], 3)

    assert job == await store.job(job_id)
    assert (job.status, job.ready, job.attempts, job.max_attempts) == (JobStatus.PENDING, True, 1, 4)
    assert (job.finished_at, job.finished_by) == (None, None)
    assert len(job.history) == 1
    assert await store.claim("B") == [Claim(job_id, "B", 2, 2)]


async def test_retry_grants_no_fewer_attempts_than_the_job_had(store: Store) -> None:
    job_id = await store.reach(JobStatus.DEAD_LETTERED, max_attempts=9)

    (job,) = await store.repo.retry_jobs([job_id], 1)

    assert (job.attempts, job.max_attempts) == (1, 9)


@pytest.mark.parametrize("status", [*UNFINISHED, JobStatus.COMPLETED])
async def test_only_dead_lettered_and_canceled_jobs_are_retried(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)
    before = await store.job(job_id)

    assert await store.repo.retry_jobs([job_id], 5) == []
    assert await store.job(job_id) == before


async def test_report_on_a_canceled_attempt_is_refused_after_the_retry(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.cancel_jobs([claim.job_id], "")
    await store.repo.retry_jobs([claim.job_id], 1)
    again = await store.claim_again(claim.job_id, "A")

    assert set(await store.repo.complete_jobs([claim])) == set()
    assert set(await store.repo.complete_jobs([again])) == {again}


async def test_job_canceled_in_a_worker_is_not_claimed_again_while_that_worker_may_start_it(
    store: Store,
) -> None:
    job_id = await store.reach(JobStatus.CANCELED)
    finished_at = (await store.job(job_id)).finished_at
    assert finished_at is not None

    (job,) = await store.repo.retry_jobs([job_id], 1)

    assert (job.ready, job.next_run_at) == (False, finished_at + CANCELED_REST)
    assert await store.claim("B") == []
    assert await store.claim_again(job_id, "B") == Claim(job_id, "B", 2, 2)


async def test_job_canceled_before_any_worker_had_it_is_ready_at_once(store: Store) -> None:
    job_id = await store.reach(JobStatus.PENDING)
    await store.repo.cancel_jobs([job_id], "")

    (job,) = await store.repo.retry_jobs([job_id], 1)

    assert job.ready
    assert await store.claim("B") == [Claim(job_id, "B", 1, 1)]


async def test_canceled_job_that_never_started_keeps_its_later_start_and_its_deadline(store: Store) -> None:
    (job_id,) = await store.submit(a_job(delay=AN_HOUR, start_within=AN_HOUR))
    before = await store.job(job_id)
    await store.repo.cancel_jobs([job_id], "by mistake")

    (job,) = await store.repo.retry_jobs([job_id], 1)

    assert (job.status, job.ready) == (JobStatus.PENDING, False)
    assert (job.next_run_at, job.start_by) == (before.next_run_at, before.start_by)
    assert await store.claim() == []


async def test_canceled_job_starts_at_once_if_that_is_asked_for(store: Store) -> None:
    (job_id,) = await store.submit(a_job(delay=AN_HOUR, start_within=AN_HOUR))
    await store.repo.cancel_jobs([job_id], "")

    (job,) = await store.repo.retry_jobs([job_id], 1, at_once=True)

    assert (job.ready, job.start_by) == (True, None)
    assert await store.claim() == [Claim(job_id, "A", 1, 1)]


async def test_canceled_job_that_has_started_is_ready_at_once(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.fail_jobs([failure(claim, retry_after=AN_HOUR)])
    await store.repo.cancel_jobs([claim.job_id], "")

    (job,) = await store.repo.retry_jobs([claim.job_id], 1)

    assert (job.status, job.ready) == (JobStatus.PENDING, True)
