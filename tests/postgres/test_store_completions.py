"""One batch of completions: of several topics and workers, answered by topic."""

from __future__ import annotations

from pulse_server.jobs.rules import Claim, JobStatus
from tests.fakes.store import Store


async def test_batch_of_several_topics_and_workers_is_answered_by_topic(store: Store) -> None:
    claims = [
        await store.start(worker, topic=topic)
        for worker, topic in [("A", "email"), ("B", "sms"), ("A", "sms"), ("C", "email")]
    ]

    completions = await store.repo.complete_jobs(claims)

    assert dict(completions.with_topics()) == {
        claims[0]: "email",
        claims[1]: "sms",
        claims[2]: "sms",
        claims[3]: "email",
    }
    assert {entry.topic: len(entry.ran_seconds) for entry in completions.by_topic} == {"email": 2, "sms": 2}
    assert all(seconds >= 0 for entry in completions.by_topic for seconds in entry.ran_seconds)
    assert [(await store.job(claim.job_id)).finished_by for claim in claims] == ["A", "B", "A", "C"]


async def test_worker_cannot_complete_the_job_of_another_in_its_batch(store: Store) -> None:
    first, second = await store.start("A"), await store.start("B")
    swapped = [first._replace(worker_id="B"), second._replace(worker_id="A")]

    assert not await store.repo.complete_jobs(swapped)

    # One of its own beside them counts: each claim is fenced by its own worker.
    assert await store.repo.complete_jobs([swapped[0], second]) == {second}
    assert await store.status(first.job_id) is JobStatus.RUNNING


async def test_claim_without_a_worker_counts_beside_those_that_have_one(store: Store) -> None:
    first, second, third = await store.start("A"), await store.start("B"), await store.start("C")
    bare = Claim(second.job_id, None, None)

    completions = await store.repo.complete_jobs([third, bare, first._replace(worker_id="C")])

    assert completions == {third, bare}
    assert (await store.job(second.job_id)).finished_by == "B"


async def test_completions_of_nothing_are_empty(store: Store) -> None:
    completions = await store.repo.complete_jobs([Claim(await store.reach(JobStatus.COMPLETED), "A", 1, 1)])

    assert (len(completions), list(completions.by_topic)) == (0, [])
