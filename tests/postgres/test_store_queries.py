"""Reads of jobs: single ones, look-ups, and counts."""

from __future__ import annotations

import pytest

from pulse_server.base.ids import PageKey, new_id
from pulse_server.jobs.rules import Claim, Job, JobFilter, JobStatus
from tests.fakes.store import Store, a_job, failure


def key_of(job: Job) -> PageKey:
    return PageKey(job.submitted_at, job.id)


async def test_unknown_job_is_none(store: Store) -> None:
    assert await store.repo.get_job(new_id()) is None
    assert await store.repo.look_up_jobs([new_id()]) == {}


async def test_look_up_returns_the_state_and_the_history_but_not_the_payload(store: Store) -> None:
    claim = await store.start("A", payload=b"large")
    await store.repo.fail_jobs([failure(claim)])
    whole = await store.job(claim.job_id)

    looked_up = (await store.repo.look_up_jobs([claim.job_id, new_id()]))[claim.job_id]

    assert looked_up.payload == b""
    assert (looked_up.status, looked_up.attempts, looked_up.locked_by) == (JobStatus.RETRYING, 1, None)
    assert looked_up.history == whole.history
    assert whole.payload == b"large"


async def test_list_is_newest_first(store: Store) -> None:
    ids = await store.submit(*[a_job(priority=number % 2) for number in range(5)])

    assert [job.id for job in await store.repo.list_jobs(JobFilter(), limit=10)] == ids[::-1]


async def test_list_leaves_payloads_and_histories_out(store: Store) -> None:
    claim = await store.start("A", payload=b"large", metadata={"a": "b"}, idempotency_key="k")
    await store.repo.fail_jobs([failure(claim, "boom")])

    (job,) = await store.repo.list_jobs(JobFilter(), limit=10)

    assert (job.payload, job.history) == (b"", ())
    assert (job.metadata, job.idempotency_key, job.last_error) == ({"a": "b"}, "k", "boom")


@pytest.mark.parametrize("status", list(JobStatus))
async def test_list_filters_by_status(store: Store, status: JobStatus) -> None:
    by_status = {wanted: await store.reach(wanted, topic=wanted.lower()) for wanted in JobStatus}

    found = await store.repo.list_jobs(JobFilter(statuses=frozenset({status})), limit=10)

    assert [job.id for job in found] == [by_status[status]]


async def test_list_filters_by_topic_and_status_together(store: Store) -> None:
    wanted = await store.reach(JobStatus.COMPLETED, topic="sms")
    await store.reach(JobStatus.COMPLETED, topic="email")
    await store.reach(JobStatus.PENDING, topic="sms")

    by_both = await store.repo.list_jobs(
        JobFilter(frozenset({"sms"}), frozenset({JobStatus.COMPLETED})), limit=10
    )
    by_topic = await store.repo.list_jobs(JobFilter(frozenset({"sms"})), limit=10)

    assert [job.id for job in by_both] == [wanted]
    assert len(by_topic) == 2


async def test_offset_skips_the_newest(store: Store) -> None:
    ids = await store.submit(*[a_job() for _ in range(5)])

    assert [job.id for job in await store.repo.list_jobs(JobFilter(), limit=2, offset=1)] == [ids[3], ids[2]]
    assert await store.repo.list_jobs(JobFilter(), limit=2, offset=9) == []


async def test_pages_by_key_meet_every_job_once_while_new_ones_arrive(store: Store) -> None:
    ids = await store.submit(*[a_job() for _ in range(10)])
    seen: list[str] = []
    after = None
    while page := await store.repo.list_jobs(JobFilter(), limit=3, after=after):
        seen.extend(job.id for job in page)
        after = key_of(page[-1])
        await store.submit(a_job())

    assert seen == ids[::-1]


async def test_page_by_key_obeys_the_filter(store: Store) -> None:
    ids = await store.submit(*[a_job("sms" if number % 2 else "email") for number in range(6)])
    first = await store.repo.list_jobs(JobFilter(frozenset({"sms"})), limit=1)

    rest = await store.repo.list_jobs(JobFilter(frozenset({"sms"})), limit=10, after=key_of(first[0]))

    assert [job.id for job in first + rest] == [ids[5], ids[3], ids[1]]


async def test_current_claims_are_those_that_hold(store: Store) -> None:
    await store.submit(a_job(), a_job())
    held, finished = await store.claim(count=2)
    await store.repo.complete_jobs([finished])
    asked = [
        held,
        finished,
        held._replace(attempt=2),
        held._replace(worker_id="B"),
        held._replace(attempt=None),
        Claim(new_id(), "A", 1, 1),
    ]

    assert await store.repo.current_claims(asked) == {held, held._replace(attempt=None)}


async def test_topics_with_ready_jobs_are_those_asked_for_that_have_some(store: Store) -> None:
    await store.reach(JobStatus.PENDING, topic="ready")
    await store.reach(JobStatus.RUNNING, topic="running")
    await store.reach(JobStatus.RETRYING, topic="waiting")
    await store.reach(JobStatus.PENDING, topic="unasked")

    topics = await store.repo.topics_with_ready_jobs(["ready", "running", "waiting", "unknown"])

    assert topics == {"ready"}


async def test_time_of_the_store_runs_forward(store: Store) -> None:
    assert await store.repo.database_now() < await store.repo.database_now()
