"""Results of jobs: stored by the statement that completes a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pulse_server.base.ids import first_id_at
from pulse_server.jobs.rules import Claim, JobFilter, JobStatus
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import Store, a_job
from tests.postgres.limited import TOPIC, Limited, in_lane


async def test_result_is_kept_with_the_completed_job(store: Store) -> None:
    first, second = await store.start("A"), await store.start("B", topic="sms")

    completions = await store.repo.complete_jobs([first, second], {second: b'{"total":3}', first: b""})

    assert dict(completions.with_topics()) == {first: "email", second: "sms"}
    assert (await store.job(second.job_id)).result == b'{"total":3}'
    assert (await store.job(first.job_id)).result == b"", "an empty result is one"
    assert (await store.job(first.job_id)).finished_by == "A"


async def test_job_without_a_result_has_none(store: Store) -> None:
    claim = await store.start("A")

    assert await store.repo.complete_jobs([claim]) == {claim}

    assert (await store.job(claim.job_id)).result is None


async def test_stale_attempt_stores_no_result(store: Store) -> None:
    claim = await store.start("A")
    stale = [claim._replace(attempt=2), claim._replace(worker_id="B")]

    assert not await store.repo.complete_jobs(stale, dict.fromkeys(stale, b"1"))

    assert (await store.job(claim.job_id)).result is None
    assert await store.status(claim.job_id) is JobStatus.RUNNING


async def test_second_report_of_a_completed_job_leaves_its_result_as_it_is(store: Store) -> None:
    claim = await store.start("A")
    assert await store.repo.complete_jobs([claim], {claim: b"1"}) == {claim}

    assert not await store.repo.complete_jobs([claim], {claim: b"2"})

    assert (await store.job(claim.job_id)).result == b"1"


async def test_lists_leave_results_out(store: Store) -> None:
    claim = await store.start("A")
    await store.repo.complete_jobs([claim], {claim: b"1"})

    (listed,) = await store.repo.list_jobs(JobFilter(), limit=5)

    assert (listed.id, listed.result) == (claim.job_id, None)


async def test_result_of_a_job_that_stays_in_place_is_kept(store: Store) -> None:
    job = a_job()._replace(id=first_id_at(datetime.now(UTC) + timedelta(days=2)))
    await store.submit(job)
    (ahead,) = await store.claim("A")
    beside = await store.start("A")

    completions = await store.repo.complete_jobs([ahead, beside], {ahead: b"1", beside: b"2"})

    assert set(completions) == {ahead, beside}
    assert [(await store.job(one.job_id)).result for one in (ahead, beside)] == [b"1", b"2"]
    repo = store.repo
    assert isinstance(repo, PostgresJobRepo)
    rows = await repo._database.reads.fetch("test", "SELECT id::text FROM pulse.jobs WHERE result = '1'")
    assert [row["id"] for row in rows] == [ahead.job_id]


async def test_plain_job_that_stays_in_place_has_no_result(store: Store) -> None:
    await store.submit(a_job()._replace(id=first_id_at(datetime.now(UTC) + timedelta(days=2))))
    (ahead,) = await store.claim("A")

    assert await store.repo.complete_jobs([ahead]) == {ahead}

    assert (await store.job(ahead.job_id)).result is None


async def test_result_of_a_limited_job_is_kept_and_frees_its_place(limited: Limited) -> None:
    await limited.limit_topic(running=1, per_lane=1)
    await limited.submit(in_lane("a"), in_lane("a"))
    (first,) = await limited.claim(5)
    assert not await limited.claim(5)

    completions = await limited.store.repo.complete_jobs([first], {first: b"1"})

    assert dict(completions.with_topics()) == {first: TOPIC}
    assert (await limited.store.job(first.job_id)).result == b"1"
    (second,) = await limited.claim(5)
    assert second.job_id != first.job_id
    assert await limited.agrees()


async def test_bare_claim_of_the_original_contract_may_have_a_result(store: Store) -> None:
    claim = await store.start("A")
    bare = Claim(claim.job_id, None, None)

    assert await store.repo.complete_jobs([bare], {bare: b"1"}) == {bare}

    assert (await store.job(claim.job_id)).result == b"1"
