"""The queries for jobs, and the actions of operators."""

from __future__ import annotations

import pytest

from pulse_server.base.errors import JobNotFound
from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import JobFilter, JobStatus
from pulse_server.work.jobs import Jobs
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job


@pytest.fixture
def jobs(replica: StoredReplica) -> Jobs:
    return Jobs(replica.repo, replica.publisher)


async def test_unknown_job_is_not_found_by_any_verb(jobs: Jobs) -> None:
    job_id = new_id()

    for verb in (
        jobs.get(job_id),
        jobs.cancel(job_id, ""),
        jobs.retry(job_id, 1),
        jobs.prioritize(job_id, 1),
        jobs.delete(job_id),
    ):
        with pytest.raises(JobNotFound, match=job_id):
            await verb


async def test_get_returns_every_field(replica: StoredReplica, jobs: Jobs) -> None:
    job_id = await replica.store.reach(JobStatus.RETRYING, payload=b"p")

    job = await jobs.get(job_id)

    assert (job.payload, len(job.history)) == (b"p", 1)


async def test_cancel_of_a_running_job_stops_its_worker_wherever_it_is(
    replica: StoredReplica, jobs: Jobs
) -> None:
    claim = await replica.store.start()

    job = await jobs.cancel(claim.job_id, "stop")

    assert job.status is JobStatus.CANCELED
    assert replica.roster.stopped == [claim]
    assert replica.line.ended == [{claim}]


async def test_cancel_of_a_waiting_job_stops_no_worker(replica: StoredReplica, jobs: Jobs) -> None:
    (job_id,) = await replica.store.submit(a_job())

    assert (await jobs.cancel(job_id, "")).status is JobStatus.CANCELED
    assert (replica.roster.stopped, replica.line.ended) == ([], [])


@pytest.mark.parametrize("status", [JobStatus.DEAD_LETTERED, JobStatus.CANCELED])
async def test_retry_wakes_dispatch(replica: StoredReplica, jobs: Jobs, status: JobStatus) -> None:
    job_id = await replica.store.reach(status)

    assert (await jobs.retry(job_id, 2)).status is JobStatus.PENDING
    assert replica.roster.woken == [{"email"}]


@pytest.mark.parametrize(("count", "has_next"), [(2, False), (3, False), (4, True)])
async def test_token_is_given_only_if_there_is_more(
    replica: StoredReplica, jobs: Jobs, count: int, has_next: bool
) -> None:
    await replica.store.submit(*[a_job() for _ in range(count)])

    page = await jobs.list(JobFilter(), limit=3, offset=0, token="")

    assert len(page.entries) == min(count, 3)
    assert bool(page.next_token) is has_next


async def test_prioritize_wakes_no_dispatcher(replica: StoredReplica, jobs: Jobs) -> None:
    """It changes the order of claims, not whether there is a job to claim."""
    (job_id,) = await replica.store.submit(a_job())

    assert (await jobs.prioritize(job_id, 3)).priority == 3
    assert replica.roster.woken == []


async def test_deletions_are_counted_as_an_operators(replica: StoredReplica) -> None:
    jobs = Jobs(replica.repo, replica.publisher)

    await jobs.delete(await replica.store.reach(JobStatus.COMPLETED))

    assert replica.metrics.deleted.values == {("COMPLETED", "operator"): 1}
