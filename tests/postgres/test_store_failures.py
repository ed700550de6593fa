"""fail_jobs: retries, dead letters, and what stays on record."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.jobs.rules import Job, JobStatus, Outcome
from tests.fakes.store import Store, failure, statuses
from tests.retry_delays import retry_delay

ABOUT = timedelta(seconds=1)  # between two looks at the clock within one statement


def wait_after_failure(job: Job) -> timedelta:
    return job.next_run_at - job.history[-1].ended_at


async def test_failed_job_retries_later(store: Store) -> None:
    claim = await store.start("A")

    assert statuses(await store.repo.fail_jobs([failure(claim, "no route")])) == {claim: JobStatus.RETRYING}

    job = await store.job(claim.job_id)
    assert (job.status, job.ready, job.attempts, job.last_error) == (JobStatus.RETRYING, False, 1, "no route")
    assert (job.locked_by, job.lease_until, job.finished_at, job.finished_by) == (None, None, None, None)
    assert await store.claim() == []


async def test_wait_grows_with_the_square_of_the_attempts_and_history_keeps_the_newest_twenty(
    store: Store,
) -> None:
    claim = await store.start("A", max_attempts=30)
    for attempt in range(1, 26):
        assert claim.attempt == attempt
        await store.repo.fail_jobs([failure(claim, f"error {attempt}")])
        job = await store.job(claim.job_id)
        assert abs(wait_after_failure(job) - retry_delay(attempt)) < ABOUT
        assert len(job.history) == min(attempt, 20)
        claim = await store.claim_again(claim.job_id, "A")

    history = (await store.job(claim.job_id)).history
    assert [entry.attempt for entry in history] == list(range(6, 26))
    assert [entry.error for entry in history] == [f"error {attempt}" for attempt in range(6, 26)]


async def test_worker_may_name_the_wait(store: Store) -> None:
    claim = await store.start("A")

    await store.repo.fail_jobs([failure(claim, retry_after=timedelta(hours=3))])

    assert abs(wait_after_failure(await store.job(claim.job_id)) - timedelta(hours=3)) < ABOUT


async def test_wait_of_zero_is_due_at_once(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.fail_jobs([failure(claim, retry_after=timedelta(0))])

    assert (await store.repo.promote_due(10)).promoted == 1
    assert [again.attempt for again in await store.claim("B")] == [2]


async def test_last_attempt_that_fails_goes_to_the_dead_letters_with_its_error(store: Store) -> None:
    claim = await store.start("A", max_attempts=2)
    await store.repo.fail_jobs([failure(claim, "first")])
    claim = await store.claim_again(claim.job_id, "B")

    assert statuses(await store.repo.fail_jobs([failure(claim, "second")])) == {
        claim: JobStatus.DEAD_LETTERED
    }

    job = await store.job(claim.job_id)
    assert (job.status, job.attempts, job.last_error, job.finished_by) == (
        JobStatus.DEAD_LETTERED,
        2,
        "second",
        "B",
    )
    assert job.finished_at is not None
    assert [(entry.attempt, entry.worker_id, entry.outcome, entry.error) for entry in job.history] == [
        (1, "A", Outcome.FAILED, "first"),
        (2, "B", Outcome.FAILED, "second"),
    ]


async def test_retry_after_does_not_save_a_job_without_attempts(store: Store) -> None:
    claim = await store.start("A", max_attempts=1)

    failed = await store.repo.fail_jobs([failure(claim, retry_after=timedelta(seconds=1))])

    assert statuses(failed) == {claim: JobStatus.DEAD_LETTERED}


async def test_discarded_job_goes_to_the_dead_letters_at_once(store: Store) -> None:
    claim = await store.start("A", max_attempts=5)

    failed = await store.repo.fail_jobs([failure(claim, "no such user", discard=True)])

    job = await store.job(claim.job_id)
    assert statuses(failed) == {claim: JobStatus.DEAD_LETTERED}
    assert (job.attempts, job.last_error, job.finished_by) == (1, "no such user", "A")
    assert [entry.outcome for entry in job.history] == [Outcome.DISCARDED]


async def test_last_error_and_history_are_kept_after_a_later_success(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.fail_jobs([failure(claim, "flaky")])
    claim = await store.claim_again(claim.job_id, "B")
    await store.repo.complete_jobs([claim])

    job = await store.job(claim.job_id)

    assert (job.status, job.finished_by, job.last_error) == (JobStatus.COMPLETED, "B", "flaky")
    assert [entry.error for entry in job.history] == ["flaky"]


async def test_history_has_the_start_and_the_end_of_the_attempt(store: Store) -> None:
    claim = await store.start("A")
    started_at = (await store.job(claim.job_id)).started_at
    await store.repo.fail_jobs([failure(claim)])

    (entry,) = (await store.job(claim.job_id)).history

    assert entry.started_at == started_at
    assert started_at is not None
    assert entry.ended_at > started_at


async def test_history_keeps_the_head_of_a_long_error_and_last_error_all_of_it(store: Store) -> None:
    claim = await store.start("A")
    error = "ö" * 3000
    await store.repo.fail_jobs([failure(claim, error)])

    job = await store.job(claim.job_id)

    assert job.last_error == error
    assert job.history[0].error == "ö" * 1000


async def test_failures_of_one_batch_are_judged_one_by_one(store: Store) -> None:
    retried = await store.start("A")
    buried = await store.start("A", max_attempts=1)
    stale = await store.start("A")

    counted = await store.repo.fail_jobs(
        [failure(stale._replace(attempt=3)), failure(buried), failure(retried)]
    )

    assert statuses(counted) == {buried: JobStatus.DEAD_LETTERED, retried: JobStatus.RETRYING}
    assert await store.status(stale.job_id) is JobStatus.RUNNING
