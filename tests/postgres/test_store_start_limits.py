"""start_within: a job that has not started in time is canceled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.database.connections import HOT_PLANS
from pulse_server.jobs.reports import SnoozeReport
from pulse_server.jobs.rules import Job, JobStatus
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.postgres.query_plans import explain, settle_on
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)


async def submitted(store: Store, **options: Any) -> Job:
    (job_id,) = await store.submit(a_job(start_within=HOUR, **options))
    return await store.job(job_id)


async def let_it_pass(store: Store, *job_ids: str) -> None:
    """Let the time in which these jobs may start be over."""
    await store.time._connection.execute(
        "UPDATE pulse.jobs SET start_by = now() - interval '1 minute' WHERE id = ANY($1::uuid[])", job_ids
    )


async def canceled(store: Store) -> list[str]:
    return [job.id for job in await store.repo.cancel_unstarted(100)]


async def test_time_to_start_counts_from_when_the_job_is_due(store: Store) -> None:
    at_once, delayed = await submitted(store), await submitted(store, delay=HOUR)

    for job in (at_once, delayed):
        assert job.start_by is not None
        assert abs(job.start_by - job.next_run_at - HOUR) < timedelta(seconds=1)
    assert (await store.job(*await store.submit(a_job()))).start_by is None


async def test_job_that_has_not_started_in_time_is_canceled_with_the_reason(store: Store) -> None:
    late, other = await submitted(store), await submitted(store)
    await let_it_pass(store, late.id)

    assert await canceled(store) == [late.id]
    job = await store.job(late.id)
    assert (job.status, job.attempts, job.finished_at is None) == (JobStatus.CANCELED, 0, False)
    assert (job.last_error or "").startswith("not started by 20")
    assert (job.last_error or "").endswith(" UTC, as start_within asks")
    assert (await store.job(other.id)).status is JobStatus.PENDING


@pytest.mark.parametrize("topics", [["email"], ["email", "other"]])
async def test_claim_does_not_take_a_job_whose_time_to_start_is_over(store: Store, topics: list[str]) -> None:
    late, other = await submitted(store), await submitted(store)
    await let_it_pass(store, late.id)

    assert [claim.job_id for claim in await store.claim(count=2, topics=topics)] == [other.id]
    assert await canceled(store) == [late.id]


async def test_job_that_was_started_may_be_retried_later(store: Store) -> None:
    job = await submitted(store)
    (claim,) = await store.claim()
    await let_it_pass(store, job.id)
    assert await canceled(store) == [], "it runs"

    await store.repo.fail_jobs([failure(claim)])
    assert await canceled(store) == []
    assert (await store.job(job.id)).start_by is None
    assert (await store.claim_again(job.id)).attempt == 2


async def test_snoozed_job_has_started(store: Store) -> None:
    job = await submitted(store)
    (claim,) = await store.claim()
    await store.repo.snooze_jobs([SnoozeReport(claim, HOUR)])
    assert (await store.job(job.id)).start_by is None


@pytest.mark.parametrize("ended_by", ["release", "undelivered"])
async def test_job_that_was_given_back_unstarted_has_not_started(store: Store, ended_by: str) -> None:
    job = await submitted(store)
    (claim,) = await store.claim(confirms=True)
    if ended_by == "release":
        await store.repo.release_jobs([claim])
    else:
        await store.time.lapse_leases(job.id)
        await store.repo.reap_expired(10)
    await let_it_pass(store, job.id)

    assert await canceled(store) == [job.id]


async def test_lost_worker_had_started_the_job(store: Store) -> None:
    job = await submitted(store)
    (claim,) = await store.claim(confirms=True)
    await store.repo.extend_leases([claim], LEASE)
    await store.time.lapse_leases(job.id)
    await store.repo.reap_expired(10)

    assert (await store.job(job.id)).start_by is None


async def test_retry_of_an_operator_has_no_time_to_start(store: Store) -> None:
    job = await submitted(store)
    await let_it_pass(store, job.id)
    await canceled(store)
    await store.repo.retry_jobs([job.id], 5)

    assert await canceled(store) == []
    (claim,) = await store.claim()
    assert claim.job_id == job.id


async def test_cancel_of_unstarted_jobs_reads_their_index_alone(store: Store, connection: Connection) -> None:
    await store.submit(*[a_job() for _ in range(500)])
    late = await store.submit(*[a_job(start_within=HOUR) for _ in range(3)])
    await let_it_pass(store, *late)
    await connection.execute("ANALYZE pulse.jobs")  # or the plan is that of the statistics of another test
    await settle_on(connection, HOT_PLANS)
    plan = await explain(connection, "cancel_unstarted", "100")

    assert plan.rows_touched() == 6
    assert plan.jobs_indexes() == ["jobs_pkey", "jobs_start_by"], plan
