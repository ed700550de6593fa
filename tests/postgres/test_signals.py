"""Signals in the store: kept until a step takes them, taken once, never missed by a job that waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Outcome
from pulse_server.domain.status import JobStatus
from pulse_server.domain.steps import NewStep, Signal
from pulse_server.postgres.steps import _SQL
from tests.fakes.store import failure
from tests.postgres.sessions import Connection, blocked
from tests.postgres.stepped import HOUR, LIMITS, Stepped

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")


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
        await stepped.connection.execute(
            "UPDATE pulse.jobs SET locked_by = NULL, lease_until = NULL, status = 'RETRYING' WHERE id = $1",
            job_id,
        )
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
    sent = [await stepped.signal(claim.job_id, value=b"") for _ in range(LIMITS.steps + 1)]
    assert [one and one.is_stored for one in sent] == [True] * LIMITS.steps + [False]
    assert sent[-1] is not None
    assert sent[-1].is_over
    assert (await stepped.rows())[1] == LIMITS.steps
    assert await stepped.step(claim) is True


async def test_wait_ends_at_its_deadline_for_good(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.wait(claim, delay=HOUR)
    until = (await stepped.store.job(claim.job_id)).next_run_at
    again = await stepped.store.claim_again(claim.job_id)  # early: an operator's doing
    assert await stepped.take(again) is None
    await stepped.wait(again, delay=HOUR)
    assert (await stepped.store.job(claim.job_id)).next_run_at == until, "the deadline stays"

    await stepped.connection.execute("UPDATE pulse.job_steps SET until = until - interval '2 hours'")
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


# ---------------------------------------------------------------- races


async def test_job_that_begins_to_wait_while_its_signal_is_stored_does_not_miss_it(
    stepped: Stepped, rival: Connection
) -> None:
    claim = await stepped.store.start()
    await rival.fetch(_SQL["signal_job"], [claim.job_id], new_id(), "approved", b"1", *LIMITS)
    waiting = await blocked(stepped.connection, stepped.wait(claim))
    await rival.execute("COMMIT")
    ended = await waiting
    assert ended is not None
    assert ended.status is JobStatus.RETRYING
    assert await stepped.is_ready(claim.job_id), "the signal has come: it runs again at once"


async def test_signal_that_meets_a_job_about_to_wait_wakes_it(stepped: Stepped, rival: Connection) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "approved", "approved", None)]
    await rival.fetch(_SQL["suspend_jobs"], *columns, LIMITS.steps, "", "", [None])
    sending = await blocked(stepped.connection, stepped.signal(claim.job_id))
    await rival.execute("COMMIT")
    sent = await sending
    assert sent is not None
    assert sent.is_awaited
    assert await stepped.is_ready(claim.job_id)


async def test_two_steps_that_take_signals_at_once_never_take_the_same(
    stepped: Stepped, rival: Connection
) -> None:
    claim = await stepped.store.start()
    for value in (b"1", b"2"):
        await stepped.signal(claim.job_id, value=value)
    await rival.fetch(_SQL["take_signal"], [claim.job_id], *claim[1:], "a", "approved", LIMITS.steps)
    taking = await blocked(stepped.connection, stepped.take(claim, step="b"))
    await rival.execute("COMMIT")
    second = await taking or await stepped.take(claim, step="b")
    assert second is not None
    assert second.value == b"2"
    assert await stepped.values(claim.job_id) == {"a": b"1", "b": b"2"}


async def test_step_that_is_stored_twice_at_once_counts_once(stepped: Stepped, rival: Connection) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "fetch", b"first", timedelta(0))]
    await rival.fetch(_SQL["store_steps"], *columns, *LIMITS)
    storing = await blocked(stepped.connection, stepped.step(claim, "fetch", b"second"))
    await rival.execute("COMMIT")
    assert await storing is False
    assert await stepped.values(claim.job_id) == {"fetch": b"first"}
    assert (await stepped.store.job(claim.job_id)).steps == 1


async def test_step_is_not_stored_for_a_claim_that_ends_meanwhile(
    stepped: Stepped, rival: Connection
) -> None:
    claim = await stepped.store.start()
    columns = [[value] for value in (*claim, "sleep", "", HOUR)]
    await rival.fetch(_SQL["suspend_jobs"], *columns, LIMITS.steps, "", "", [None])
    storing = await blocked(
        stepped.connection, stepped.steps.store_steps([NewStep(claim, "late", b"1")], LIMITS)
    )
    await rival.execute("COMMIT")
    assert await storing == [None]
    assert await stepped.names(claim.job_id) == ["sleep"]
