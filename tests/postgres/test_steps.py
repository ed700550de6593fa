"""Steps in Postgres: gone with their job, by retention and by the sweep."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.jobs.rules import JobStatus
from pulse_server.work.retention import ExpiredJobs
from tests.fakes.store import failure
from tests.postgres.stepped import StoredSteps


async def test_steps_go_with_a_job_that_retention_deletes(stepped: StoredSteps) -> None:
    claim = await stepped.store.start()
    await stepped.step(claim)
    await stepped.signal(claim.job_id)
    await stepped.store.repo.fail_jobs([failure(claim, discard=True)])
    day = timedelta(days=1)
    await stepped.store.time.age(claim.job_id, submitted=40 * day, finished=39 * day)
    retention = ExpiredJobs(stepped.database)
    await retention.delete_expired({JobStatus.DEAD_LETTERED: 30 * day}, after=None, limit=10)
    assert await stepped.rows() == (0, 0)


async def test_sweep_forgets_steps_and_signals_whose_job_is_gone(stepped: StoredSteps) -> None:
    gone, there = [await stepped.store.start() for _ in range(2)]
    for claim in (gone, there):
        await stepped.step(claim, "a")
        await stepped.step(claim, "b")
        await stepped.signal(claim.job_id)
    await stepped.connection.execute("DELETE FROM pulse.jobs WHERE id = $1", gone.job_id)  # an older server

    first = "00000000-0000-0000-0000-000000000000"
    assert await stepped.steps.forget_steps(first, 3) == (3, 2, there.job_id)
    assert await stepped.steps.forget_steps(there.job_id, 3) == (0, 0, None)
    assert (await stepped.steps.forget_signals(first, 10)).forgotten == 1
    assert await stepped.rows() == (2, 1)
    assert await stepped.names(there.job_id) == ["a", "b"]


async def test_plain_job_has_nothing_of_steps(stepped: StoredSteps) -> None:
    claim = await stepped.store.start()
    row = await stepped.connection.fetchrow(
        "SELECT steps, step_bytes, signals, signal_bytes, suspensions, waits_for "
        "FROM pulse.jobs WHERE id = $1",
        claim.job_id,
    )
    assert row is not None
    assert set(row.values()) == {None}
    await stepped.store.repo.complete_jobs([claim])
    done = await stepped.connection.fetchrow(
        "SELECT suspensions, timeline FROM pulse.completed_jobs WHERE id = $1", claim.job_id
    )
    assert done is not None
    assert set(done.values()) == {None}
