"""The undo of a cancel, a retry and a change of priority."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import NewJob, OnConflict, Scope, Unique
from pulse_server.jobs.rules import Claim, Job, JobStatus
from tests.fakes.store import Store, a_job, failure

AN_HOUR = timedelta(hours=1)


async def undo(store: Store, action: str) -> tuple[list[Job], int]:
    """Undo the whole action. Returns the jobs, and how many were skipped."""
    found = await store.repo.jobs_of_action(action, after=None, limit=100)
    able = [one.job_id for one in found if one.can_be_undone]
    undone = await store.repo.undo_jobs(able, action)
    return [entry.job for entry in undone], len(found) - len(undone)


def with_key(scope: Scope, **changes: Any) -> NewJob:
    return a_job(unique=Unique("k", scope), **changes)


async def test_canceled_jobs_wait_again_as_before(store: Store) -> None:
    action = new_id()
    claim = await store.start("A")
    await store.repo.fail_jobs([failure(claim, "no route", retry_after=AN_HOUR)])
    delayed, ready = await store.submit(a_job(delay=AN_HOUR, start_within=AN_HOUR), a_job(priority=3))
    before = [await store.job(job_id) for job_id in (claim.job_id, delayed, ready)]
    await store.repo.cancel_jobs([job.id for job in before], "by mistake", action=action)

    _, skipped = await undo(store, action)

    assert [await store.job(job.id) for job in before] == before
    assert skipped == 0
    assert await store.claim(count=9) == [Claim(ready, "A", 1, 1)]
    assert await store.repo.jobs_of_action(action, after=None, limit=9) == []


async def test_job_that_was_running_is_left_canceled(store: Store) -> None:
    action = new_id()
    claim = await store.start("A")
    await store.repo.cancel_jobs([claim.job_id], "", action=action)

    (found,) = await store.repo.jobs_of_action(action, after=None, limit=9)

    assert found == (claim.job_id, False, True)
    assert await store.repo.undo_jobs([claim.job_id], action) == []
    assert await store.status(claim.job_id) is JobStatus.CANCELED


@pytest.mark.parametrize("status", [JobStatus.DEAD_LETTERED, JobStatus.CANCELED])
async def test_retried_job_is_finished_as_before(store: Store, status: JobStatus) -> None:
    action, job_id = new_id(), await store.reach(status, max_attempts=1)
    before = await store.job(job_id)
    await store.repo.retry_jobs([job_id], 5, action=action)

    _, skipped = await undo(store, action)

    assert (await store.job(job_id), skipped) == (before, 0)
    assert await store.claim() == []


async def test_retried_job_that_was_claimed_since_is_left(store: Store) -> None:
    action, job_id = new_id(), await store.reach(JobStatus.DEAD_LETTERED)
    await store.repo.retry_jobs([job_id], 5, action=action)
    (claim,) = await store.claim("B")
    assert await undo(store, action) == ([], 1)
    await store.repo.release_jobs([claim])

    assert await undo(store, action) == ([], 1)


async def test_priority_is_as_before_also_while_the_job_runs(store: Store) -> None:
    action = new_id()
    claim = await store.start("A", priority=2)
    (waiting, ended, changed) = await store.submit(a_job(priority=3), a_job(), a_job())
    ids = [claim.job_id, waiting, ended, changed]
    await store.repo.prioritize_jobs(ids, 9, action=action)
    await store.repo.prioritize_jobs([changed], 5, action=new_id())
    await store.repo.cancel_jobs([ended], "")

    undone, _ = await undo(store, action)

    assert {job.id for job in undone} == {claim.job_id, waiting}
    assert [(await store.job(job_id)).priority for job_id in ids] == [2, 3, 9, 5]
    assert await store.status(claim.job_id) is JobStatus.RUNNING


async def test_only_the_last_action_on_a_job_can_be_undone(store: Store) -> None:
    first, second = new_id(), new_id()
    (job_id,) = await store.submit(a_job(delay=AN_HOUR))
    await store.repo.cancel_jobs([job_id], "", action=first)
    await store.repo.retry_jobs([job_id], 1, action=second)

    assert await undo(store, first) == ([], 0)
    ((job,), _) = await undo(store, second)
    assert job.status is JobStatus.CANCELED


async def test_action_without_an_id_ends_the_undo_of_the_one_before(store: Store) -> None:
    action = new_id()
    (job_id,) = await store.submit(a_job())
    await store.repo.cancel_jobs([job_id], "", action=action)
    await store.repo.retry_jobs([job_id], 1)
    await store.repo.cancel_jobs([job_id], "again")

    assert await undo(store, action) == ([], 0)


@pytest.mark.parametrize("scope", list(Scope))
async def test_canceled_job_whose_key_another_holds_stays_canceled(store: Store, scope: Scope) -> None:
    action = new_id()
    first = with_key(scope, delay=AN_HOUR)
    await store.repo.insert_rich_jobs([first])
    await store.repo.cancel_jobs([first.id], "", action=action)
    second = with_key(scope)
    await store.repo.insert_rich_jobs([second])

    assert await undo(store, action) == ([], 1)

    await store.repo.cancel_jobs([second.id], "")
    ((job,), _) = await undo(store, action)
    assert (job.status, job.unique_scope) == (JobStatus.PENDING, scope)
    answers = await store.repo.insert_rich_jobs([with_key(scope)])
    assert [answer.job_id for answer in answers if not isinstance(answer, Exception)] == [first.id]


async def test_retried_job_that_a_submit_replaced_is_left(store: Store) -> None:
    action = new_id()
    first = with_key(Scope.LIVE)
    await store.repo.insert_rich_jobs([first])
    await store.repo.cancel_jobs([first.id], "")
    await store.repo.retry_jobs([first.id], 1, action=action)
    replacing = Unique("k", Scope.LIVE, OnConflict.REPLACE)
    await store.repo.insert_rich_jobs([a_job(payload=b"2", unique=replacing)])

    assert await undo(store, action) == ([], 0)
    assert (await store.job(first.id)).payload == b"2"


async def test_jobs_of_an_action_come_in_pages(store: Store) -> None:
    action = new_id()
    ids = sorted(await store.submit(*[a_job() for _ in range(5)]))
    await store.repo.cancel_jobs(ids, "", action=action)

    first = await store.repo.jobs_of_action(action, after=None, limit=3)
    rest = await store.repo.jobs_of_action(action, after=first[-1].job_id, limit=3)

    assert [one.job_id for one in (*first, *rest)] == ids
    assert await store.repo.jobs_of_action(new_id(), after=None, limit=3) == []
