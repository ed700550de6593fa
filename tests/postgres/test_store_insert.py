"""insert_jobs: every acknowledged submit is one job, however often it is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.errors import AlreadyExists
from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.rules import JobFilter, JobStatus
from tests.fakes.store import Store, a_job


async def test_job_comes_back_as_it_was_submitted(store: Store) -> None:
    schedule_id = new_id()
    job = a_job(
        "mail/out",
        payload=b"\x00\xff raw",
        priority=-7,
        max_attempts=3,
        idempotency_key="key-1",
        metadata={"trace": "ü1", "empty": ""},
        schedule_id=schedule_id,
    )
    await store.submit(job)

    stored = await store.job(job.id)

    assert (stored.id, stored.topic, stored.payload, stored.priority) == (
        job.id,
        "mail/out",
        b"\x00\xff raw",
        -7,
    )
    assert (stored.attempts, stored.max_attempts, stored.idempotency_key) == (0, 3, "key-1")
    assert stored.metadata == {"trace": "ü1", "empty": ""}
    assert stored.schedule_id == schedule_id
    assert (stored.status, stored.ready, stored.history) == (JobStatus.PENDING, True, ())
    assert stored.last_error is None
    assert stored.finished_at is None


async def test_same_id_and_payload_is_the_first_answer_again(store: Store) -> None:
    job = a_job()
    await store.submit(job)

    assert await store.repo.insert_jobs([job]) == [Submitted(job.id, True)]
    assert len(await store.repo.list_jobs(JobFilter(), limit=10)) == 1


async def test_duplicate_of_a_finished_job_starts_nothing(store: Store) -> None:
    job = a_job()
    await store.submit(job)
    (claim,) = await store.claim()
    await store.repo.complete_jobs([claim])

    assert await store.repo.insert_jobs([job]) == [Submitted(job.id, True)]
    assert await store.status(job.id) is JobStatus.COMPLETED
    assert await store.claim() == []


@pytest.mark.parametrize("changes", [{"payload": b"other"}, {"topic": "sms"}], ids=["payload", "topic"])
async def test_same_id_with_other_content_is_refused(store: Store, changes: dict[str, object]) -> None:
    job = a_job()
    await store.submit(job)

    (answer,) = await store.repo.insert_jobs([job._replace(**changes)])

    assert isinstance(answer, AlreadyExists)
    assert answer.job_id == job.id
    assert "job_id" in str(answer)
    assert (await store.job(job.id)).payload == job.payload


async def test_same_key_and_payload_answers_with_the_first_job(store: Store) -> None:
    first = a_job(idempotency_key="k")
    await store.submit(first)

    assert await store.repo.insert_jobs([a_job(idempotency_key="k")]) == [Submitted(first.id, True)]


async def test_same_key_with_another_payload_is_refused(store: Store) -> None:
    first = a_job(idempotency_key="k")
    await store.submit(first)

    (answer,) = await store.repo.insert_jobs([a_job(idempotency_key="k", payload=b"other")])

    assert isinstance(answer, AlreadyExists)
    assert answer.job_id == first.id
    assert "idempotency_key 'k'" in str(answer)


async def test_key_is_unique_per_topic_only(store: Store) -> None:
    await store.submit(a_job("email", idempotency_key="k"), a_job("sms", idempotency_key="k"))


async def test_jobs_without_a_key_do_not_collide(store: Store) -> None:
    await store.submit(a_job(), a_job())


async def test_duplicates_inside_one_batch_insert_once(store: Store) -> None:
    job, keyed = a_job(), a_job(idempotency_key="k")
    twin = a_job(idempotency_key="k")

    answers = await store.repo.insert_jobs([job, job, keyed, twin])

    assert answers == [
        Submitted(job.id, False),
        Submitted(job.id, True),
        Submitted(keyed.id, False),
        Submitted(keyed.id, True),
    ]


async def test_second_of_two_contents_under_one_id_in_a_batch_is_refused(store: Store) -> None:
    job = a_job(payload=b"first")

    first, second = await store.repo.insert_jobs([job, job._replace(payload=b"second")])

    assert first == Submitted(job.id, False)
    assert isinstance(second, AlreadyExists)
    assert (await store.job(job.id)).payload == b"first"


async def test_id_and_key_of_two_different_jobs_are_refused(store: Store) -> None:
    by_id, by_key = a_job(), a_job(idempotency_key="k")
    await store.submit(by_id, by_key)

    (answer,) = await store.repo.insert_jobs([by_id._replace(idempotency_key="k")])

    assert isinstance(answer, AlreadyExists)
    assert answer.job_id == by_key.id


async def test_job_that_lost_by_its_key_is_not_answered_with_its_namesakes_insert(store: Store) -> None:
    await store.submit(a_job(idempotency_key="k", payload=b"old"))
    loser = a_job(idempotency_key="k", payload=b"lost")
    winner = loser._replace(idempotency_key=None, payload=b"won")

    answers = await store.repo.insert_jobs([loser, winner])

    assert isinstance(answers[0], AlreadyExists)
    assert answers[1] == Submitted(winner.id, False)
    assert (await store.job(winner.id)).payload == b"won"


async def test_refused_neighbor_does_not_stop_the_batch(store: Store) -> None:
    taken = a_job()
    await store.submit(taken)
    before, after = a_job(), a_job()

    answers = await store.repo.insert_jobs([before, taken._replace(payload=b"x"), after])

    assert answers[0] == Submitted(before.id, False)
    assert isinstance(answers[1], AlreadyExists)
    assert answers[2] == Submitted(after.id, False)


async def test_delayed_job_waits_by_the_stores_clock(store: Store) -> None:
    job = a_job(delay=timedelta(hours=2))
    await store.submit(job)

    stored = await store.job(job.id)

    assert not stored.ready
    assert abs(stored.next_run_at - stored.submitted_at - timedelta(hours=2)) < timedelta(seconds=1)
    assert await store.claim() == []


@pytest.mark.parametrize(
    ("run_at", "ready"), [(datetime(2001, 1, 1, tzinfo=UTC), True), (datetime(2150, 1, 1, tzinfo=UTC), False)]
)
async def test_run_at_decides_whether_a_job_is_ready(store: Store, run_at: datetime, ready: bool) -> None:
    job = a_job(run_at=run_at)
    await store.submit(job)

    stored = await store.job(job.id)

    assert (stored.ready, stored.next_run_at) == (ready, run_at)


async def test_no_jobs_is_no_work(store: Store) -> None:
    nothing: list[NewJob] = []
    assert await store.repo.insert_jobs(nothing) == []


@pytest.mark.parametrize("same", ["topic", "priority", "max_attempts", "all", "none"])
async def test_batch_keeps_what_its_jobs_share_and_where_they_differ(store: Store, same: str) -> None:
    jobs = [
        a_job(
            "mail" if same in ("topic", "all") else f"mail-{number}",
            priority=7 if same in ("priority", "all") else number,
            max_attempts=3 if same in ("max_attempts", "all") else number + 1,
            payload=b"%d" % number,
            metadata={"number": str(number)} if number else None,
        )
        for number in range(3)
    ]
    await store.submit(*jobs)
    for job in jobs:
        stored = await store.job(job.id)
        assert (stored.topic, stored.priority, stored.max_attempts) == (
            job.topic,
            job.priority,
            job.max_attempts,
        )
        assert (stored.payload, stored.metadata) == (job.payload, job.metadata or {})
