"""Jobs that were redriven thousands of times: the count of attempts goes on, the wait does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import Store, failure, statuses
from tests.postgres.sessions import Connection
from tests.retry_delays import MOST_ATTEMPTS_SQUARED, retry_delay

ABOUT = timedelta(seconds=1)
WORN = (MOST_ATTEMPTS_SQUARED - 1, MOST_ATTEMPTS_SQUARED, 46_341, 2**31 - 2)  # the third is the root of 2³¹


async def worn(store: Store, connection: Connection, attempts: int) -> Claim:
    """A job that runs for the so-manieth time, with one attempt left."""
    claim = await store.start("A")
    await connection.execute(
        "UPDATE pulse.jobs SET attempts = $2, max_attempts = $2 + 1 WHERE id = $1", claim.job_id, attempts
    )
    return claim._replace(attempt=attempts)


@pytest.mark.parametrize("attempts", WORN)
async def test_failure_after_thousands_of_attempts_is_taken_and_so_are_its_neighbors(
    store: Store, connection: Connection, attempts: int
) -> None:
    claim, neighbor = await worn(store, connection, attempts), await store.start("B")

    failed = await store.repo.fail_jobs([failure(claim), failure(neighbor)])

    assert statuses(failed) == {claim: JobStatus.RETRYING, neighbor: JobStatus.RETRYING}
    job = await store.job(claim.job_id)
    assert abs(job.next_run_at - job.history[-1].ended_at - retry_delay(attempts)) < ABOUT


@pytest.mark.parametrize("attempts", WORN)
async def test_lease_after_thousands_of_attempts_is_reaped_and_so_are_the_others(
    store: Store, connection: Connection, attempts: int
) -> None:
    claim, other = await worn(store, connection, attempts), await store.start("B")
    await store.time.lapse_leases(claim.job_id, other.job_id)

    reaped = await store.repo.reap_expired(10)

    assert {entry.claim for entry in reaped} == {claim, other}
