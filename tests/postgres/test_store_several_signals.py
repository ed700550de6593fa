"""A job that waits for one of several signals. The names are stored together, one in each line."""

from __future__ import annotations

from tests.postgres.stepped import Stepped


async def test_wait_for_several_signals_ends_with_either_and_takes_the_oldest(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    either = "approved\nrejected"
    assert await stepped.take(claim, either) is None
    await stepped.wait(claim, either)
    job = await stepped.store.job(claim.job_id)
    assert (job.waits_for, job.history[-1].error) == (either, "waits for approved or rejected")

    await stepped.signal(claim.job_id, "another")
    assert not await stepped.is_ready(claim.job_id)
    await stepped.signal(claim.job_id, "rejected", b"1")
    assert await stepped.is_ready(claim.job_id)
    await stepped.signal(claim.job_id, "approved", b"2")
    (again,) = await stepped.store.claim()
    taken = await stepped.take(again, either)
    assert taken is not None
    assert (taken.name, taken.signal, taken.value) == (either, "rejected", b"1")
    assert [step.signal for step in await stepped.steps.list_steps(claim.job_id)] == ["rejected"]
    later = await stepped.take(again, "approved")
    assert later is not None
    assert (later.signal, later.value) == ("approved", b"2")


async def test_job_that_suspends_for_several_signals_is_ready_if_one_has_come(stepped: Stepped) -> None:
    claim = await stepped.store.start()
    await stepped.signal(claim.job_id, "rejected")
    await stepped.wait(claim, "approved\nrejected")
    assert await stepped.is_ready(claim.job_id)
