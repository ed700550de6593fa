"""Steps in Postgres: gone with their job, by retention and by the sweep."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.domain.status import JobStatus
from pulse_server.upkeep.retention import ExpiredJobs
from tests.fakes.store import failure
from tests.postgres.stepped import StoredSteps


async def test_steps_go_with_a_job_that_retention_deletes(stored_steps: StoredSteps) -> None:
    claim = await stored_steps.store.start()
    await stored_steps.step(claim)
    await stored_steps.signal(claim.job_id)
    await stored_steps.store.repo.fail_jobs([failure(claim, discard=True)])
    day = timedelta(days=1)
    await stored_steps.store.time.age(claim.job_id, submitted=40 * day, finished=39 * day)
    retention = ExpiredJobs(stored_steps.database)
    await retention.delete_expired({JobStatus.DEAD_LETTERED: 30 * day}, after=None, limit=10)
    assert await stored_steps.rows() == (0, 0)


async def test_sweep_forgets_steps_and_signals_whose_job_is_gone(stored_steps: StoredSteps) -> None:
    gone, there = [await stored_steps.store.start() for _ in range(2)]
    for claim in (gone, there):
        await stored_steps.step(claim, "a")
        await stored_steps.step(claim, "b")
        await stored_steps.signal(claim.job_id)
    await stored_steps.connection.execute(
        "DELETE FROM pulse.jobs WHERE id = $1", gone.job_id
    )  # an older server

    first = "00000000-0000-0000-0000-000000000000"
    assert await stored_steps.steps.forget_steps(first, 3) == (3, 2, there.job_id)
    assert await stored_steps.steps.forget_steps(there.job_id, 3) == (0, 0, None)
    assert (await stored_steps.steps.forget_signals(first, 10)).forgotten == 1
    assert await stored_steps.rows() == (2, 1)
    assert await stored_steps.names(there.job_id) == ["a", "b"]


async def test_plain_job_has_nothing_of_steps(stored_steps: StoredSteps) -> None:
    claim = await stored_steps.store.start()
    row = await stored_steps.connection.fetchrow(
        "SELECT steps, step_bytes, signals, signal_bytes, suspensions, waits_for "
        "FROM pulse.jobs WHERE id = $1",
        claim.job_id,
    )
    assert row is not None
    assert set(row.values()) == {None}
    await stored_steps.store.repo.complete_jobs([claim])
    done = await stored_steps.connection.fetchrow(
        "SELECT suspensions, timeline FROM pulse.completed_jobs WHERE id = $1", claim.job_id
    )
    assert done is not None
    assert set(done.values()) == {None}
