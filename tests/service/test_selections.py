"""Actions on many jobs: in batches, and only on jobs that still match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulse_server.base.errors import InvalidArgument
from pulse_server.jobs.rules import LIVE, TERMINAL, JobFilter, JobStatus
from pulse_server.work.jobs import Batch, Jobs, Selections
from tests.fakes.replica import StoredReplica
from tests.fakes.store import a_job

DEAD = JobFilter(statuses=frozenset({JobStatus.DEAD_LETTERED}))


@pytest.fixture
def selections(replica: StoredReplica) -> Selections:
    return Selections(replica.repo, Jobs(replica.repo, replica.publisher))


async def dead_letters(replica: StoredReplica, count: int) -> list[str]:
    return [await replica.store.reach(JobStatus.DEAD_LETTERED) for _ in range(count)]


async def run_through(step: Callable[[str], Awaitable[Batch]]) -> list[int]:
    """Take steps until no job is left. Returns the changes of each step."""
    changed, token = [], ""
    while True:
        batch = await step(token)
        changed.append(batch.changed)
        token = batch.next_token
        if not token:
            return changed


async def test_last_full_batch_says_that_nothing_is_left(
    replica: StoredReplica, selections: Selections
) -> None:
    await dead_letters(replica, 4)

    assert await run_through(lambda token: selections.retry(DEAD, 2, limit=2, token=token)) == [2, 2]


async def test_nothing_to_do_is_one_step(selections: Selections) -> None:
    assert await run_through(lambda token: selections.retry(DEAD, 2, limit=2, token=token)) == [0]


async def test_caller_that_stops_half_way_leaves_the_rest_unchanged(
    replica: StoredReplica, selections: Selections
) -> None:
    ids = await dead_letters(replica, 5)

    await selections.retry(DEAD, 2, limit=2, token="")

    statuses = [await replica.store.status(job_id) for job_id in reversed(ids)]  # newest first
    assert statuses == [JobStatus.PENDING] * 2 + [JobStatus.DEAD_LETTERED] * 3


async def test_job_that_another_caller_retried_is_skipped(
    replica: StoredReplica, selections: Selections, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await dead_letters(replica, 3)
    look = replica.repo.matching_jobs

    async def look_and_lose_one(*args: object, **kwargs: object) -> object:
        found = await look(*args, **kwargs)  # type: ignore[arg-type]  # whatever the port takes
        await replica.repo.retry_jobs([ids[1]], 1)
        return found

    monkeypatch.setattr(replica.repo, "matching_jobs", look_and_lose_one)

    assert await run_through(lambda token: selections.retry(DEAD, 2, limit=9, token=token)) == [2]


async def test_job_that_was_claimed_meanwhile_is_not_canceled_as_a_waiting_one(
    replica: StoredReplica, selections: Selections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.store.submit(a_job(), a_job())
    look = replica.repo.matching_jobs

    async def look_and_claim_one(*args: object, **kwargs: object) -> object:
        found = await look(*args, **kwargs)  # type: ignore[arg-type]  # whatever the port takes
        await replica.store.claim()
        return found

    monkeypatch.setattr(replica.repo, "matching_jobs", look_and_claim_one)
    waiting = JobFilter(statuses=frozenset({JobStatus.PENDING}))

    assert (await selections.cancel(waiting, "", limit=9, token="")).changed == 1
    assert sorted(job.status for job in await replica.jobs()) == ["CANCELED", "RUNNING"]


async def test_cancel_without_a_status_takes_every_unfinished_job(
    replica: StoredReplica, selections: Selections
) -> None:
    for status in reversed(JobStatus):
        await replica.store.reach(status)
    before = {job.id: job.status for job in await replica.jobs()}

    count, *_ = await selections.count(JobFilter(frozenset({"email"})))
    batch = await selections.cancel(JobFilter(frozenset({"email"})), "stop", limit=9, token="")

    assert count == batch.changed == 3
    for job_id, status in before.items():
        expected = JobStatus.CANCELED if status in LIVE else status
        assert await replica.store.status(job_id) is expected
    assert len(replica.roster.stopped) == 1  # the worker of the one that ran


async def test_retry_wakes_dispatch(replica: StoredReplica, selections: Selections) -> None:
    await dead_letters(replica, 2)

    await selections.retry(DEAD, 2, limit=9, token="")

    assert replica.roster.woken == [{"email"}]


@pytest.mark.parametrize("status", [None, *sorted(LIVE), JobStatus.COMPLETED])
async def test_only_dead_letters_and_canceled_jobs_can_be_retried(
    selections: Selections, status: JobStatus | None
) -> None:
    wanted = JobFilter(frozenset({"email"}), frozenset({status}) if status else None)

    with pytest.raises(InvalidArgument, match=r"status.*DEAD_LETTERED or CANCELED"):
        await selections.retry(wanted, 1, limit=9, token="")


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED])
async def test_only_unfinished_jobs_can_be_canceled(selections: Selections, status: JobStatus) -> None:
    with pytest.raises(InvalidArgument, match=f"is {status}, but only PENDING, RUNNING or RETRYING jobs"):
        await selections.cancel(JobFilter(statuses=frozenset({status})), "", limit=9, token="")


async def test_count_of_completed_jobs_reads_a_bounded_number_of_jobs_of_any_topic(
    replica: StoredReplica, selections: Selections, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("rare", "often", "often", "rare", "often"):
        await replica.store.reach(JobStatus.COMPLETED, topic=topic)
    wanted = JobFilter(frozenset({"rare"}), frozenset({JobStatus.COMPLETED}))

    assert (await selections.count(wanted))[::2] == (2, False)
    monkeypatch.setattr("pulse_server.work.jobs.SEARCHED_JOBS", 3)
    assert (await selections.count(wanted))[::2] == (1, True)


async def test_prioritize_without_a_status_takes_every_unfinished_job(
    replica: StoredReplica, selections: Selections
) -> None:
    for status in reversed(JobStatus):
        await replica.store.reach(status)

    batch = await selections.prioritize(JobFilter(frozenset({"email"})), 7, limit=9, token="")

    assert batch.changed == 3
    assert {job.status for job in await replica.jobs() if job.priority == 7} == LIVE


async def test_job_that_was_retried_meanwhile_is_not_deleted(
    replica: StoredReplica, selections: Selections, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await dead_letters(replica, 3)
    look = replica.repo.matching_jobs

    async def look_and_retry_one(*args: object, **kwargs: object) -> object:
        found = await look(*args, **kwargs)  # type: ignore[arg-type]  # whatever the port takes
        await replica.repo.retry_jobs([ids[1]], 1)
        return found

    monkeypatch.setattr(replica.repo, "matching_jobs", look_and_retry_one)

    assert await run_through(lambda token: selections.delete(DEAD, limit=9, token=token)) == [2]
    assert [job.id for job in await replica.jobs()] == [ids[1]]


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_only_unfinished_jobs_can_be_prioritized(selections: Selections, status: JobStatus) -> None:
    with pytest.raises(InvalidArgument, match=f"is {status}, but only PENDING, RUNNING or RETRYING jobs"):
        await selections.prioritize(JobFilter(statuses=frozenset({status})), 1, limit=9, token="")


@pytest.mark.parametrize("status", [None, *sorted(LIVE)])
async def test_only_finished_jobs_can_be_deleted(selections: Selections, status: JobStatus | None) -> None:
    wanted = JobFilter(frozenset({"email"}), frozenset({status}) if status else None)

    with pytest.raises(InvalidArgument, match=r"status.*COMPLETED, DEAD_LETTERED or CANCELED"):
        await selections.delete(wanted, limit=9, token="")
