"""prioritize_jobs and delete_jobs."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import LIVE, TERMINAL, WAITING, JobStatus
from tests.fakes.store import Store, a_job, failure

each_live_status = pytest.mark.parametrize("status", sorted(LIVE))
each_terminal_status = pytest.mark.parametrize("status", sorted(TERMINAL))


# --- prioritize


@each_live_status
async def test_prioritize_changes_the_priority_and_nothing_else(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status, payload=b"p")
    before = await store.job(job_id)

    (job,) = await store.repo.prioritize_jobs([job_id], 7)

    assert job == await store.job(job_id)
    assert job.priority == 7
    assert {
        name for name in (field.name for field in fields(job)) if getattr(job, name) != getattr(before, name)
    } == {"priority"}


@each_terminal_status
async def test_finished_job_keeps_its_priority(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)

    assert await store.repo.prioritize_jobs([job_id], 7) == []
    assert (await store.job(job_id)).priority == 0


async def test_job_with_the_higher_priority_is_claimed_first(store: Store) -> None:
    first, second, third = await store.submit(a_job(), a_job(), a_job())

    await store.repo.prioritize_jobs([third], 1)
    await store.repo.prioritize_jobs([first], -1)

    assert [claim.job_id for claim in await store.claim(count=3)] == [third, second, first]


async def test_priority_of_a_running_job_counts_from_its_next_attempt(store: Store) -> None:
    claim = await store.start()
    (other,) = await store.submit(a_job())

    await store.repo.prioritize_jobs([claim.job_id], 5)
    assert await store.repo.current_claims([claim]) == {claim}
    await store.repo.release_jobs([claim])

    assert [again.job_id for again in await store.claim(count=2)] == [claim.job_id, other]


async def test_prioritize_takes_only_those_in_the_statuses_it_names(store: Store) -> None:
    jobs = {status: await store.reach(status, topic=status.lower()) for status in JobStatus}

    changed = await store.repo.prioritize_jobs(
        list(jobs.values()), 7, WAITING | {JobStatus.COMPLETED, JobStatus.CANCELED}
    )

    assert {job.id for job in changed} == {jobs[status] for status in WAITING}
    assert {job.payload for job in changed} == {b""}


# --- delete


@each_terminal_status
async def test_finished_job_is_deleted_with_its_id_and_its_key(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status, idempotency_key="k")

    assert await store.repo.delete_jobs([job_id, new_id()]) == {job_id: status}

    assert await store.repo.get_job(job_id) is None
    await store.submit(a_job(id=job_id, idempotency_key="k"))


@each_live_status
async def test_job_that_is_not_finished_is_not_deleted(store: Store, status: JobStatus) -> None:
    job_id = await store.reach(status)

    assert await store.repo.delete_jobs([job_id]) == {}
    assert await store.status(job_id) is status


async def test_delete_takes_only_those_in_the_statuses_it_names(store: Store) -> None:
    jobs = {status: await store.reach(status, topic=status.lower()) for status in JobStatus}

    deleted = await store.repo.delete_jobs(list(jobs.values()), {JobStatus.CANCELED, JobStatus.RUNNING})

    assert deleted == {jobs[JobStatus.CANCELED]: JobStatus.CANCELED}
    del jobs[JobStatus.CANCELED]
    assert {status: await store.status(job_id) for status, job_id in jobs.items()} == {s: s for s in jobs}


async def test_report_on_a_deleted_job_changes_nothing(store: Store) -> None:
    claim = await store.start()
    await store.repo.cancel_jobs([claim.job_id], "")
    await store.repo.delete_jobs([claim.job_id])

    assert await store.repo.complete_jobs([claim]) == set()
    assert await store.repo.fail_jobs([failure(claim)]) == {}
    assert await store.repo.get_job(claim.job_id) is None
