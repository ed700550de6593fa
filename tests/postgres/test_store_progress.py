"""Progress: stored with a heartbeat or the end of an attempt, by the worker that holds the job alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.jobs.reports import SnoozeReport
from pulse_server.jobs.rules import Claim, Job, JobFilter, JobStatus, Progress, ProgressReport
from tests.fakes.store import LEASE, Store, failure, room, success

SECOND = timedelta(seconds=1)
HALF = ProgressReport(0.5, "20 of 40 files", '{"file":20}', 1)
DONE = ProgressReport(1.0, "", None, 2)


async def report(store: Store, claim: Claim, progress: ProgressReport = HALF) -> None:
    answer = await store.repo.extend_leases([claim], LEASE, {}, {claim: progress})
    assert answer.extended == {claim}


async def job_of(store: Store, claim: Claim) -> Job:
    job = await store.repo.get_job(claim.job_id)
    assert job is not None
    return job


async def progress_of(store: Store, claim: Claim) -> Progress:
    progress = (await job_of(store, claim)).progress
    assert progress is not None
    return progress


async def test_progress_is_stored_with_the_heartbeat(store: Store) -> None:
    claim, other = await store.start(), await store.start()
    before = (await job_of(store, claim)).lease_until
    answer = await store.repo.extend_leases([claim, other], LEASE, {}, {claim: HALF})

    assert answer.extended == {claim, other}
    progress = await progress_of(store, claim)
    assert progress[:4] == (0.5, "20 of 40 files", '{"file":20}', 1)
    assert [(stored.claim, stored.topic, stored.progress) for stored in answer.stored] == [
        (claim, "email", progress._replace(cursor=""))
    ]
    job, plain = await job_of(store, claim), await job_of(store, other)
    assert job.delivered
    assert before is not None
    assert job.lease_until is not None
    assert job.lease_until >= before
    assert plain.progress is None


async def test_rest_is_estimated_from_the_start_of_the_attempt(store: Store) -> None:
    claim = await store.start()
    await report(store, claim)
    await report(store, claim, DONE)

    progress = await progress_of(store, claim)
    assert (progress.since, progress.since_fraction) == ((await job_of(store, claim)).started_at, 0.0)
    assert progress.cursor == '{"file":20}'  # as it was: the second report has none


async def test_worker_that_lost_its_claim_writes_nothing(store: Store) -> None:
    claim = await store.start()
    await store.repo.extend_leases([claim], LEASE)
    await store.time.lapse_leases(claim.job_id)
    await store.repo.reap_expired(100)
    again = await store.claim_again(claim.job_id)
    for late in (claim, again._replace(worker_id="other"), again._replace(attempt=7)):
        answer = await store.repo.extend_leases([late], LEASE, {}, {late: HALF})
        assert not any(answer)
    assert await store.repo.fail_jobs([failure(claim, progress=HALF)]) == {}
    assert await store.repo.release_jobs([claim], progress={claim: HALF}) == {}

    assert (await job_of(store, claim)).progress is None


async def test_progress_stays_for_the_next_attempt(store: Store) -> None:
    claim = await store.start()
    await report(store, claim)
    await store.time.lapse_leases(claim.job_id)
    await store.repo.reap_expired(100)
    await store.time.make_due(claim.job_id)
    await store.repo.promote_due(10)
    (claimed,) = await store.repo.claim_batch(["email"], room("B", 1), LEASE)

    assert claimed.progress is not None
    assert claimed.progress[:4] == (*HALF[:3], 1)


async def test_next_attempt_is_estimated_from_its_first_report(store: Store) -> None:
    claim = await store.start()
    await report(store, claim)
    await store.repo.fail_jobs([failure(claim)])
    again = await store.claim_again(claim.job_id)
    await report(store, again, HALF._replace(fraction=0.6))

    progress = await progress_of(store, again)
    started_at = (await job_of(store, again)).started_at
    assert progress.since is not None
    assert started_at is not None
    assert (progress.attempt, progress.since_fraction) == (2, 0.6)
    assert progress.since >= progress.reported_at >= started_at


@pytest.mark.parametrize("end", ["fail", "snooze", "release"])
async def test_last_progress_is_stored_with_the_end_of_the_attempt(store: Store, end: str) -> None:
    claim = await store.start()
    match end:
        case "fail":
            await store.repo.fail_jobs([failure(claim, progress=HALF)])
        case "snooze":
            await store.repo.snooze_jobs([SnoozeReport(claim, SECOND, "", HALF)])
        case _:
            await store.repo.release_jobs([claim], progress={claim: HALF})

    assert (await job_of(store, claim)).status is JobStatus.RETRYING
    assert (await progress_of(store, claim))[:4] == (*HALF[:3], 1)


async def test_retry_of_an_operator_keeps_the_progress(store: Store) -> None:
    claim = await store.start(max_attempts=1)
    await store.repo.fail_jobs([failure(claim, progress=HALF)])
    (job,) = await store.repo.retry_jobs([claim.job_id], 1)

    assert job.status is JobStatus.PENDING
    assert job.progress is not None
    assert job.progress[:4] == (*HALF[:3], 1)
    assert (await job_of(store, claim)).progress == job.progress


async def test_completed_job_keeps_no_progress(store: Store) -> None:
    claim = await store.start()
    await report(store, claim)
    await store.repo.complete_jobs([success(claim)])

    job = await job_of(store, claim)
    assert (job.status, job.progress) == (JobStatus.COMPLETED, None)


async def test_lists_leave_the_cursor_out(store: Store) -> None:
    claim = await store.start()
    await report(store, claim)
    (job,) = await store.repo.list_jobs(JobFilter(), limit=10)
    assert job.progress is not None
    assert (job.progress.fraction, job.progress.cursor) == (0.5, "")


async def test_report_that_was_overtaken_changes_nothing(store: Store) -> None:
    claim = await store.start()
    await report(store, claim, DONE)
    await report(store, claim, HALF)

    assert (await progress_of(store, claim)).fraction == 1.0


async def test_cursor_comes_back_as_it_was_given(store: Store) -> None:
    cursor = '{"n": 1.0, "big": 12345678901234567890123, "nul": "\\u0000", "n2": 1e5}'
    claim = await store.start()
    await report(store, claim, HALF._replace(cursor=cursor))

    assert (await progress_of(store, claim)).cursor == cursor
    await report(store, claim, HALF._replace(cursor="", number=2))
    assert (await progress_of(store, claim)).cursor == ""
