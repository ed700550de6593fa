"""Snoozes: a handler asks to run its job later, which costs no attempt."""

from __future__ import annotations

from pulse_server.base.bounds import MAX_SNOOZES, SNOOZED_TOO_OFTEN, SNOOZED_TOO_OFTEN_GROUP
from pulse_server.jobs.rules import JobStatus, Outcome
from tests.fakes.store import failure, statuses
from tests.postgres.runs import HOUR, SECOND, Runs, about
from tests.postgres.sessions import Connection


async def test_snooze_costs_no_attempt(runs: Runs) -> None:
    claim = await runs.store.start(max_attempts=2)
    assert statuses(await runs.snooze(claim, reason="closed")) == {claim: JobStatus.RETRYING}

    job = await runs.job(claim.job_id)
    assert (job.attempts, job.max_attempts, job.snoozes, job.last_error) == (0, 2, 1, None)
    assert (await runs.waits(job.id)).total_seconds() == about(HOUR)
    assert [(past.attempt, past.outcome, past.error) for past in job.history] == [
        (1, Outcome.SNOOZED, "closed")
    ]
    again = await runs.store.claim_again(job.id)
    assert (again.attempt, again.run) == (1, 2)
    assert await runs.snooze(claim) == {}, "the first run is over"


async def test_backoff_does_not_count_snoozes(runs: Runs) -> None:
    claim = await runs.store.start()
    for _ in range(3):
        await runs.snooze(claim)
        claim = await runs.store.claim_again(claim.job_id)
    await runs.store.repo.fail_jobs([failure(claim)])

    assert (claim.attempt, claim.run) == (1, 4)
    assert (await runs.waits(claim.job_id)) <= SECOND


async def test_snoozes_in_a_row_do_not_push_failures_out_of_the_history(runs: Runs) -> None:
    claim = await runs.store.start(max_attempts=3)
    await runs.store.repo.fail_jobs([failure(claim, "boom")])
    for _ in range(25):
        claim = await runs.store.claim_again(claim.job_id)
        await runs.snooze(claim)

    job = await runs.job(claim.job_id)
    assert [(past.attempt, past.outcome) for past in job.history] == [
        (1, Outcome.FAILED),
        (2, Outcome.SNOOZED),
    ]
    assert (job.snoozes, job.run, job.last_error) == (25, 26, "boom")


async def test_job_that_is_snoozed_too_often_is_dead(runs: Runs, connection: Connection) -> None:
    claim = await runs.store.start()
    await connection.execute("UPDATE pulse.jobs SET snoozes = $1", MAX_SNOOZES)
    assert statuses(await runs.snooze(claim)) == {claim: JobStatus.DEAD_LETTERED}

    job = await runs.job(claim.job_id)
    assert (job.last_error, job.error_group) == (SNOOZED_TOO_OFTEN, SNOOZED_TOO_OFTEN_GROUP)
    assert job.finished_by == "A"


async def test_completed_job_keeps_its_snoozes_and_crashes(runs: Runs) -> None:
    claim = await runs.store.start()
    await runs.snooze(claim)
    job = await runs.lose(await runs.store.claim_again(claim.job_id))
    await runs.store.repo.complete_jobs([await runs.store.claim_again(job.id)])

    job = await runs.job(job.id)
    assert (job.status, job.snoozes, job.crashes) == (JobStatus.COMPLETED, 1, 1)
