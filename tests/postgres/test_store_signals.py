"""Signals: kept until a step takes them, and taken once."""

from __future__ import annotations

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import Claim, JobStatus, Outcome
from pulse_server.steps.rules import Signal
from tests.fakes.store import failure
from tests.postgres.stepped import BOUNDS, HOUR, Stepped


async def test_signal_wakes_the_job_that_waits_for_it(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    assert await stepped.take(claim) is None
    await stepped.wait(claim)
    job = await stepped.store.job(claim.job_id)
    assert (job.status, job.ready, job.waits_for) == (JobStatus.RETRYING, False, "approved")
    assert job.history[-1].outcome is Outcome.SUSPENDED
    assert job.history[-1].error == "waits for approved"

    other = await stepped.signal(claim.job_id, "another")
    assert other is not None
    assert not other.is_awaited
    assert not await stepped.is_ready(claim.job_id)
    sent = await stepped.signal(claim.job_id, value=b"yes")
    assert sent is not None
    assert sent.is_awaited
    assert await stepped.is_ready(claim.job_id)

    (again,) = await stepped.store.claim()
    taken = await stepped.take(again)
    assert taken is not None
    assert (taken.value, taken.attempt) == (b"yes", 1)
    assert (await stepped.store.job(claim.job_id)).steps == 1


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRYING])
async def test_signal_that_comes_first_is_kept(stepped: Stepped, status: JobStatus) -> None:
    job_id = await stepped.store.reach(status)
    sent = await stepped.signal(job_id, value=b"early")
    assert sent is not None
    assert sent.is_stored
    assert not sent.is_awaited
    assert await stepped.store.status(job_id) is status
    if status is JobStatus.RUNNING:
        assert await stepped.store.repo.release_jobs([Claim(job_id, "A", 1, 1)])
    claim = await stepped.store.claim_again(job_id)
    taken = await stepped.take(claim)
    assert taken is not None
    assert taken.value == b"early"


async def test_signals_are_taken_in_the_order_in_which_they_came_each_once(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    for value in (b"1", b"2"):
        await stepped.signal(claim.job_id, value=value)
    first = await stepped.take(claim, step="approved#1")
    assert first == await stepped.take(claim, step="approved#1"), "a repeat takes no other"
    second = await stepped.take(claim, step="approved#2")
    assert (first and first.value, second and second.value) == (b"1", b"2")
    assert await stepped.take(claim, step="approved#3") is None


async def test_repeated_signal_is_stored_once(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    signal_id = new_id()
    for _ in range(2):
        await stepped.signal(claim.job_id, value=b"1", signal_id=signal_id)
    await stepped.take(claim, step="a")
    sent = await stepped.signal(claim.job_id, value=b"1", signal_id=signal_id)
    assert sent is not None
    assert not sent.is_stored
    assert await stepped.take(claim, step="b") is None
    assert await stepped.steps.knows_signal(Signal(signal_id, claim.job_id, "approved", b""))
    await stepped.store.repo.complete_jobs([claim])
    assert await stepped.steps.knows_signal(Signal(signal_id, claim.job_id, "approved", b""))
    assert not await stepped.steps.knows_signal(Signal(new_id(), claim.job_id, "approved", b""))


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.CANCELED, JobStatus.DEAD_LETTERED])
async def test_finished_job_takes_no_signal(stepped: Stepped, status: JobStatus) -> None:
    job_id = await stepped.store.reach(status)
    assert await stepped.signal(job_id) is None
    assert await stepped.rows() == (0, 0)


async def test_signals_of_a_job_are_bounded_in_bytes_and_leave_those_of_its_steps(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.signal(claim.job_id, value=b"x" * 9_000)
    sent = await stepped.signal(claim.job_id, value=b"x" * 9_000)
    assert sent is not None
    assert (sent.is_stored, sent.is_over) == (False, False)
    assert await stepped.step(claim, value=b"x" * 9_000) is True


async def test_signals_of_a_job_are_bounded_in_number_and_leave_its_steps(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    sent = [await stepped.signal(claim.job_id, value=b"") for _ in range(BOUNDS.steps + 1)]
    assert [one and one.is_stored for one in sent] == [True] * BOUNDS.steps + [False]
    assert sent[-1] is not None
    assert sent[-1].is_over
    assert (await stepped.rows())[1] == BOUNDS.steps
    assert await stepped.step(claim) is True


async def test_wait_ends_at_its_deadline_for_good(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.wait(claim, delay=HOUR)
    until = (await stepped.store.job(claim.job_id)).next_run_at
    again = await stepped.store.claim_again(claim.job_id)  # early: an operator's doing
    assert await stepped.take(again) is None
    await stepped.wait(again, delay=HOUR)
    assert (await stepped.store.job(claim.job_id)).next_run_at == until, "the deadline stays"

    await stepped.end_waits()
    again = await stepped.store.claim_again(claim.job_id)
    late = await stepped.take(again)
    assert late is not None
    assert (late.value, late.signal_id, late.attempt) == (None, None, 1)
    await stepped.signal(claim.job_id)
    assert await stepped.take(again) == late, "a signal that comes later is not taken for it"


async def test_wait_without_end_is_due_when_its_signal_comes_only(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.wait(claim)
    assert (await stepped.store.job(claim.job_id)).next_run_at.year == 9999
    promotion = await stepped.store.repo.promote_due(10)
    assert promotion.promoted == 0
    assert promotion.next_due_in is not None


async def test_signal_does_not_hasten_a_job_that_waits_for_its_backoff(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.wait(claim)
    again = await stepped.store.claim_again(claim.job_id)
    await stepped.store.repo.fail_jobs([failure(again, retry_after=HOUR)])
    sent = await stepped.signal(claim.job_id)
    assert sent is not None
    assert sent.is_stored
    assert not sent.is_awaited
    assert not await stepped.is_ready(claim.job_id)


async def test_fresh_retry_starts_the_count_of_signals_anew(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    for _ in range(BOUNDS.steps):
        await stepped.signal(claim.job_id, value=b"")
    await stepped.store.repo.fail_jobs([failure(claim, discard=True)])
    await stepped.store.repo.retry_jobs([claim.job_id], 3)
    sent = await stepped.signal(claim.job_id)
    assert sent is not None
    assert sent.is_over
    await stepped.store.repo.cancel_jobs([claim.job_id], "")
    await stepped.store.repo.retry_jobs([claim.job_id], 3, fresh=True)
    sent = await stepped.signal(claim.job_id)
    assert sent is not None
    assert sent.is_stored
