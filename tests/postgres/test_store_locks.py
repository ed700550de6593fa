"""A row that another session has locked is left as it is, and its neighbors are not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest

from pulse_server.base.errors import InvalidTransition, JobLocked
from pulse_server.dispatch.claims import Claims, SparedWorkers
from pulse_server.jobs.reports import BeatAnswer
from pulse_server.jobs.rules import LIVE, JobFilter, JobStatus, ReleaseAnswer
from pulse_server.work.attempts import Leases, Reports
from pulse_server.work.jobs import Jobs, Selections
from tests.fakes.replica import Replica
from tests.fakes.store import LEASE, Store, a_job, failure, success
from tests.fakes.topic_settings import no_rules
from tests.postgres.sessions import Connection

Locking: TypeAlias = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture
def locked(second_connection: Connection) -> Locking:
    """Locks the rows of these jobs in another session for as long as the block lasts."""

    @asynccontextmanager
    async def lock(*job_ids: str) -> AsyncIterator[None]:
        async with second_connection.transaction():
            await second_connection.execute(
                "SELECT FROM pulse.jobs WHERE id = ANY($1::uuid[]) FOR UPDATE", job_ids
            )
            yield

    return lock


@pytest.mark.parametrize("result", [success, failure])
async def test_report_of_a_locked_job_is_put_off_and_the_others_are_taken(
    store: Store, locked: Locking, result: Callable[..., object]
) -> None:
    await store.submit(*[a_job() for _ in range(5)])
    claims = await store.claim(count=5)
    reports = [result(claim) for claim in claims]
    service = Reports(store.repo, Replica().publisher)

    async with locked(claims[1].job_id, claims[3].job_id):
        for _ in range(2):  # the second time they are known to be locked
            answers = await service.report(reports)  # type: ignore[arg-type]
            assert [type(answer) for answer in answers] == [type(None), JobLocked] * 2 + [type(None)]
            assert await store.status(claims[1].job_id) is JobStatus.RUNNING

    assert await service.report(reports) == [None] * 5  # type: ignore[arg-type]
    assert await store.status(claims[3].job_id) is not JobStatus.RUNNING


async def test_report_that_is_too_late_is_refused_though_a_neighbor_is_locked(
    store: Store, locked: Locking
) -> None:
    stale, held = await store.start(), await store.start()
    await store.repo.cancel_jobs([stale.job_id], "")

    async with locked(held.job_id):
        answers = await Reports(store.repo, Replica().publisher).report([success(stale), success(held)])

    assert [type(answer) for answer in answers] == [InvalidTransition, JobLocked]


async def test_beat_of_a_locked_job_is_unknown_and_not_lost(store: Store, locked: Locking) -> None:
    await store.submit(*[a_job() for _ in range(3)])
    first, second, lost = await store.claim(count=3)
    without_attempt = second._replace(attempt=None)
    await store.repo.complete_jobs([lost])
    spared = SparedWorkers(store.repo, LEASE)
    service = Leases(store.repo, Replica().publisher, spared, no_rules(), 2 * LEASE, failed=lambda: None)
    leases = [(await store.job(claim.job_id)).lease_until for claim in (first, second)]

    async with locked(second.job_id):
        answer = await service.extend([first, second, lost, without_attempt])
        assert answer == BeatAnswer(lost=[lost], unknown=[second, without_attempt])

    beaten = [(await store.job(claim.job_id)).lease_until for claim in (first, second)]
    assert [before != after for before, after in zip(leases, beaten, strict=True)] == [True, False]
    assert await service.extend([first, second]) == BeatAnswer([], [])


async def test_release_of_a_locked_job_is_named_and_the_others_go_back(store: Store, locked: Locking) -> None:
    await store.submit(*[a_job() for _ in range(3)])
    first, second, lost = await store.claim(count=3)
    await store.repo.complete_jobs([lost])
    replica = Replica()
    spared = SparedWorkers(store.repo, LEASE)
    claims = Claims(store.repo, replica.limits, replica.publisher, spared, LEASE)

    async with locked(second.job_id):
        assert await claims.release([first, second, lost]) == ReleaseAnswer(1, [second])

    assert await claims.release([first, second]) == ReleaseAnswer(1, [])
    assert await store.status(second.job_id) is JobStatus.RETRYING


async def test_actions_on_one_locked_job_ask_to_try_again(store: Store, locked: Locking) -> None:
    alive = await store.reach(JobStatus.RUNNING)
    dead = await store.reach(JobStatus.DEAD_LETTERED)
    jobs = Jobs(store.repo, Replica().publisher)

    async with locked(alive, dead):
        for act in (
            lambda: jobs.cancel(alive, ""),
            lambda: jobs.prioritize(alive, 7),
            lambda: jobs.retry(dead, 1),
            lambda: jobs.delete(dead),
        ):
            with pytest.raises(JobLocked, match="Try again"):
                await act()
        with pytest.raises(InvalidTransition):  # whatever has it locked
            await jobs.delete(alive)

    assert (await jobs.retry(dead, 1)).status is JobStatus.PENDING
    assert (await jobs.cancel(alive, "")).status is JobStatus.CANCELED


async def test_action_on_many_jobs_passes_over_those_that_are_locked_and_ends(
    store: Store, locked: Locking
) -> None:
    job_ids = await store.submit(*[a_job() for _ in range(7)])
    selections = Selections(store.repo, Jobs(store.repo, Replica().publisher))
    wanted = JobFilter(frozenset({"email"}), statuses=LIVE)

    changed, locked_ones, token, batches = 0, 0, "", 0
    async with locked(job_ids[2], job_ids[5]):
        while token or not batches:
            batch = await selections.cancel(wanted, "", limit=2, token=token)
            changed, locked_ones = changed + batch.changed, locked_ones + batch.locked
            token, batches = batch.next_token, batches + 1

    assert (changed, locked_ones, batches) == (5, 2, 4)
    again = await selections.cancel(wanted, "", limit=500, token="")
    assert (again.changed, again.locked) == (2, 0)


async def test_other_actions_on_many_jobs_count_those_that_are_locked(store: Store, locked: Locking) -> None:
    waiting = await store.submit(a_job("sms"), a_job("sms"))
    dead = [await store.reach(JobStatus.DEAD_LETTERED) for _ in range(2)]
    selections = Selections(store.repo, Jobs(store.repo, Replica().publisher))
    dead_letters = JobFilter(statuses=frozenset({JobStatus.DEAD_LETTERED}))

    async with locked(waiting[0], dead[0]):
        prioritized = await selections.prioritize(JobFilter(frozenset({"sms"})), 7, limit=500, token="")
        retried = await selections.retry(dead_letters, 1, limit=500, token="")
        deleted = await selections.delete(dead_letters, limit=500, token="")

    assert (prioritized.changed, prioritized.locked) == (1, 1)
    assert (retried.changed, retried.locked) == (1, 1)
    assert (deleted.changed, deleted.locked) == (0, 1)


async def test_jobs_of_a_worker_that_is_spared_are_not_reaped(store: Store) -> None:
    await store.submit(a_job(), a_job())
    (spared,), (dead,) = await store.claim("A"), await store.claim("B")
    await store.time.lapse_leases(spared.job_id, dead.job_id)

    await store.repo.spare_workers(["A", "C"], LEASE)
    assert [entry.claim for entry in await store.repo.reap_expired(10)] == [dead]
    assert await store.repo.reap_expired(10) == []


async def test_worker_is_spared_for_a_lease_and_no_longer(store: Store) -> None:
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    await store.repo.spare_workers(["A"], -LEASE)  # a lease ago

    assert [entry.claim for entry in await store.repo.reap_expired(10)] == [claim]


async def test_one_that_is_spared_again_is_spared_for_longer(store: Store) -> None:
    claim = await store.start()
    await store.time.lapse_leases(claim.job_id)
    await store.repo.spare_workers(["A"], -LEASE)
    await store.repo.spare_workers(["A"], LEASE)

    assert await store.repo.reap_expired(10) == []
