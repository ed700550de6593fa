"""Steps: fenced, stored once, bounded, and gone with their job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.jobs.reports import NewStep, SnoozeReport
from pulse_server.jobs.rules import Claim, JobStatus, Outcome, StepKind
from tests.fakes.store import LEASE, a_job, failure, room
from tests.postgres.stepped import BOUNDS, HOUR, Stepped


async def test_stored_step_is_there_for_the_next_attempt(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    assert await stepped.step(claim, "fetch", b"[1]") is True
    assert await stepped.step(claim, "parse", b"[2]") is True
    await stepped.store.repo.fail_jobs([failure(claim)])
    await stepped.store.claim_again(claim.job_id)

    assert await stepped.values(claim.job_id) == {"fetch": b"[1]", "parse": b"[2]"}
    assert await stepped.names(claim.job_id) == ["fetch", "parse"]
    assert (await stepped.store.job(claim.job_id)).steps == 2


async def test_repeated_step_keeps_its_first_value_and_counts_once(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    assert await stepped.step(claim, "fetch", b"first") is True
    assert await stepped.step(claim, "fetch", b"second") is False

    assert await stepped.values(claim.job_id) == {"fetch": b"first"}
    assert (await stepped.store.job(claim.job_id)).steps == 1


@pytest.mark.parametrize("lost", [{"worker_id": "B"}, {"attempt": 2}])
async def test_worker_that_lost_its_claim_cannot_store_a_step(
    stepped: Stepped, lost: dict[str, object]
) -> None:
    claim = await stepped.store.start()
    stale: Claim = claim._replace(**lost)  # type: ignore[arg-type]
    assert await stepped.step(stale) is None
    assert await stepped.sleep(stale) is None
    assert await stepped.steps.take_signal(stale, "approved", "approved", BOUNDS) is None
    assert await stepped.rows() == (0, 0)
    assert await stepped.store.status(claim.job_id) is JobStatus.RUNNING


async def test_steps_of_many_jobs_are_stored_together_and_answered_in_order(stepped: Stepped) -> None:
    claims = [await stepped.store.start() for _ in range(3)]
    stale = claims[1]._replace(attempt=7)
    new = [NewStep(claim, name, b"1") for name in ("a", "b") for claim in (claims[2], stale, claims[0])]
    assert await stepped.steps.store_steps(new, BOUNDS) == [True, None, True, True, None, True]
    assert await stepped.names(claims[2].job_id) == ["a", "b"]
    assert (await stepped.store.job(claims[0].job_id)).steps == 2


async def test_no_more_steps_are_stored_than_a_job_may_have(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    new = [NewStep(claim, str(number), b"1") for number in range(12)]
    assert await stepped.steps.store_steps(new, BOUNDS) == [True] * 10 + [False] * 2
    assert await stepped.step(claim, "0", b"1") is False, "a repeat is looked up, full or not"
    assert (await stepped.store.job(claim.job_id)).steps == 10


async def test_no_more_bytes_are_stored_than_a_job_may_have(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    assert await stepped.step(claim, "a", b"x" * 6_000) is True
    assert await stepped.step(claim, "b", b"x" * 6_000) is False
    assert await stepped.step(claim, "c", b"x" * 3_000) is True
    assert await stepped.names(claim.job_id) == ["a", "c"]


async def test_completed_job_keeps_its_steps_as_a_timeline_without_values(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.step(claim, "fetch", b"secret")
    await stepped.sleep(claim)
    claim = await stepped.store.claim_again(claim.job_id)
    await stepped.signal(claim.job_id)
    await stepped.take(claim)
    await stepped.signal(claim.job_id, "unused")
    assert set(await stepped.store.repo.complete_jobs([claim])) == {claim}

    steps = await stepped.steps.list_steps(claim.job_id)
    assert [(step.name, step.kind, step.attempt, step.size, step.value) for step in steps] == [
        ("fetch", StepKind.STEP, 1, 6, None),
        ("sleep", StepKind.SLEEP, 1, 0, None),
        ("approved", StepKind.SIGNAL, 1, 4, None),
    ]
    assert steps[1].until is not None
    assert steps[1].stored_at is not None
    assert await stepped.rows() == (0, 0), "nothing is left behind"
    job = await stepped.store.job(claim.job_id)
    assert (job.status, job.steps, job.suspensions, job.attempts) == (JobStatus.COMPLETED, 3, 1, 1)


async def test_jobs_with_and_without_steps_complete_in_one_batch(stepped: Stepped) -> None:
    claims = [await stepped.store.start() for _ in range(4)]
    await stepped.step(claims[1])
    await stepped.step(claims[3])
    stale = claims[2]._replace(attempt=9)
    completed = await stepped.store.repo.complete_jobs([*claims[:2], stale, claims[3]])
    assert set(completed) == {claims[0], claims[1], claims[3]}
    assert await stepped.names(claims[3].job_id) == ["fetch"]
    assert await stepped.rows() == (0, 0)


async def test_redrive_keeps_the_steps(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.step(claim)
    await stepped.store.repo.fail_jobs([failure(claim, discard=True)])
    await stepped.store.repo.retry_jobs([claim.job_id], 3)
    assert await stepped.names(claim.job_id) == ["fetch"]
    assert (await stepped.store.job(claim.job_id)).steps == 1


async def test_fresh_redrive_forgets_steps_and_taken_signals_and_keeps_the_others(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.step(claim, "large", b"x" * 9_000)
    await stepped.signal(claim.job_id, value=b"1")
    await stepped.signal(claim.job_id, value=b"2")
    await stepped.take(claim)
    await stepped.store.repo.fail_jobs([failure(claim, discard=True)])
    (job,) = await stepped.store.repo.retry_jobs([claim.job_id], 3, fresh=True)
    assert (job.steps, await stepped.rows()) == (0, (0, 1))

    (again,) = await stepped.store.claim()
    assert await stepped.step(again, "large", b"y" * 9_000) is True, "the bytes are counted anew"
    taken = await stepped.take(again)
    assert taken is not None
    assert taken.value == b"2"


async def test_steps_go_with_a_job_that_is_deleted(stepped: Stepped) -> None:
    job_id = await stepped.store.reach(JobStatus.RUNNING)
    claim = Claim(job_id, "A", 1, 1)
    await stepped.step(claim)
    await stepped.signal(job_id)
    await stepped.store.repo.cancel_jobs([job_id], "")
    assert await stepped.rows() == (1, 1)
    await stepped.store.repo.delete_jobs([job_id])
    assert await stepped.rows() == (0, 0)

    await stepped.store.submit(a_job(id=job_id))
    (claim,) = await stepped.store.claim()
    assert await stepped.step(claim, value=b"of the new job") is True


async def test_sleep_costs_no_attempt_and_is_not_a_failure(stepped: Stepped) -> None:
    claim = await stepped.store.start(max_attempts=1)
    ended = await stepped.sleep(claim)
    assert ended is not None
    assert ended.status is JobStatus.RETRYING
    job = await stepped.store.job(claim.job_id)
    assert (job.attempts, job.max_attempts, job.suspensions, job.waits_for) == (0, 1, 1, "")
    assert not job.ready
    assert job.last_error is None
    assert [(past.outcome, past.error) for past in job.history] == [(Outcome.SUSPENDED, "sleeps")]

    again = await stepped.store.claim_again(claim.job_id)
    await stepped.store.repo.fail_jobs([failure(again)])
    assert await stepped.store.status(claim.job_id) is JobStatus.DEAD_LETTERED, "this was its only attempt"


async def test_job_that_runs_before_the_end_of_its_sleep_sleeps_to_the_same_moment(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.sleep(claim, 10 * HOUR)
    until = (await stepped.store.job(claim.job_id)).next_run_at
    again = await stepped.store.claim_again(claim.job_id)
    await stepped.sleep(again, 20 * HOUR)
    job = await stepped.store.job(claim.job_id)
    assert (job.next_run_at, job.steps, job.suspensions) == (until, 1, 2)
    assert len(job.history) == 1, "of suspensions in a row the history has the last"


async def test_backoff_and_limit_of_snoozes_do_not_count_suspensions(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    for number in range(9):
        await stepped.sleep(claim, step=f"sleep#{number}")
        claim = await stepped.store.claim_again(claim.job_id)
    await stepped.store.repo.fail_jobs([failure(claim)])
    job = await stepped.store.job(claim.job_id)
    assert job.next_run_at - await stepped.store.repo.database_now() <= timedelta(seconds=1)
    assert (job.snoozes, job.suspensions, job.waits_for) == (0, 9, None)


async def test_job_that_sleeps_with_too_many_steps_is_a_dead_letter_with_the_reason(
    stepped: Stepped,
) -> None:
    claim = await stepped.store.start()
    for number in range(10):
        await stepped.step(claim, str(number))
    ended = await stepped.sleep(claim)
    assert ended is not None
    assert ended.status is JobStatus.DEAD_LETTERED
    job = await stepped.store.job(claim.job_id)
    assert "10 steps" in (job.last_error or "")
    assert job.error_group
    assert len(await stepped.names(claim.job_id)) == 10


async def test_attempt_that_stored_a_step_costs_nothing_when_its_worker_stops(stepped: Stepped) -> None:
    claim = await stepped.store.start(max_attempts=1)
    await stepped.step(claim)
    assert await stepped.store.repo.release_jobs([claim])
    (again,) = await stepped.store.claim()
    job = await stepped.store.job(claim.job_id)
    assert (again.attempt, again.run, job.max_attempts) == (1, 2, 1)


@pytest.mark.parametrize("takes_signal", [False, True])
async def test_attempt_that_stored_a_step_counts_before_its_first_heartbeat(
    stepped: Stepped, takes_signal: bool
) -> None:
    claim = await stepped.store.start(confirms=True)
    if takes_signal:
        await stepped.signal(claim.job_id)
        await stepped.take(claim)
    else:
        await stepped.step(claim)
    await stepped.store.time.lapse_leases(claim.job_id)
    await stepped.store.repo.reap_expired(10)
    assert (await stepped.store.claim_again(claim.job_id)).attempt == 2


async def test_job_is_claimed_with_its_stored_steps(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.step(claim, "fetch", b"1")
    await stepped.sleep(claim)
    (plain,) = await stepped.store.submit(a_job())
    await stepped.store.time.make_due(claim.job_id)
    await stepped.store.repo.promote_due(10)
    jobs = {job.id: job for job in await stepped.store.repo.claim_batch(["email"], room("A", 10), LEASE)}
    steps = jobs[claim.job_id].steps or ()
    assert [(step.name, step.value) for step in steps] == [("fetch", b"1"), ("sleep", None)]
    assert jobs[claim.job_id].has_steps
    assert (jobs[plain].steps, bool(jobs[plain].has_steps)) == (None, False)


async def test_snoozed_job_with_a_signal_and_no_steps_is_known_to_have_none(stepped: Stepped) -> None:
    plain, signaled = await stepped.store.start(), await stepped.store.start()
    await stepped.store.repo.snooze_jobs([SnoozeReport(claim, HOUR) for claim in (plain, signaled)])
    await stepped.signal(signaled.job_id)
    await stepped.store.time.make_due(plain.job_id, signaled.job_id)
    await stepped.store.repo.promote_due(10)
    jobs = {job.id: job for job in await stepped.store.repo.claim_batch(["email"], room("A", 10), LEASE)}
    assert jobs[plain.job_id].steps is None
    assert jobs[signaled.job_id].steps == []
