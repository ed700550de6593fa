"""Unique jobs: at most one job of a key waits, lives, or is stored in a period."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import AlreadyExists
from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import NewJob, OnConflict, Scope, Submitted, Unique, UniqueHolder
from pulse_server.jobs.rules import JobStatus
from tests.fakes.store import Store, a_job, failure

HOUR = timedelta(hours=1)
SKIP = Unique("shop-7")
LIVE = Unique("shop-7", Scope.LIVE)
REPLACE = Unique("shop-7", on_conflict=OnConflict.REPLACE)
DEBOUNCE = Unique("shop-7", on_conflict=OnConflict.DEBOUNCE, period=HOUR, longest=10 * HOUR)
THROTTLE = Unique("shop-7", on_conflict=OnConflict.THROTTLE, period=HOUR)


def a_unique_job(unique: Unique = SKIP, **changes: Any) -> NewJob:
    if unique.on_conflict is OnConflict.DEBOUNCE:
        changes.setdefault("delay", unique.period)
    return a_job(unique=unique, **changes)


async def submit(store: Store, job: NewJob) -> Submitted:
    (answer,) = await store.repo.insert_rich_jobs([job])
    assert isinstance(answer, Submitted), answer
    return answer


async def submitted(store: Store, unique: Unique = SKIP, **changes: Any) -> str:
    """Store a job that meets no other. Returns its id."""
    job = a_unique_job(unique, **changes)
    assert await submit(store, job) == Submitted(job.id, False)
    return job.id


async def test_second_job_of_a_key_is_a_duplicate_of_the_one_that_waits(store: Store) -> None:
    first = await submitted(store)

    assert await submit(store, a_unique_job(payload=b"2")) == Submitted(first, True)
    job = await store.job(first)
    assert (job.payload, job.unique_key, job.unique_scope) == (b"{}", "shop-7", "waiting")


async def test_other_key_and_other_topic_are_apart(store: Store) -> None:
    await submitted(store)
    await submitted(store, Unique("shop-8"))
    await submitted(store, topic="sms")


async def test_job_that_has_started_does_not_swallow_the_next_one(store: Store) -> None:
    first = await submitted(store)
    await store.claim()
    second = await submitted(store, payload=b"new data")

    assert (await store.job(second)).unique_scope == "waiting"
    running = await store.job(first)
    assert (running.unique_key, running.unique_scope) == ("shop-7", None), "people still see the key"
    assert await submit(store, a_unique_job()) == Submitted(second, True)


@pytest.mark.parametrize("back", ["release", "failure", "reap"])
async def test_job_that_waits_again_holds_its_key_no_longer(store: Store, back: str) -> None:
    first = await submitted(store)
    (claim,) = await store.claim()
    match back:
        case "release":
            await store.repo.release_jobs([claim])
        case "failure":
            await store.repo.fail_jobs([failure(claim)])
        case _:
            await store.time.lapse_leases(first)
            await store.repo.reap_expired(10)
    assert (await store.job(first)).status is JobStatus.RETRYING

    await submitted(store)


async def test_live_key_is_held_until_the_job_has_finished(store: Store) -> None:
    first = await submitted(store, LIVE)
    (claim,) = await store.claim()
    assert await submit(store, a_unique_job(LIVE)) == Submitted(first, True), "it runs"
    await store.repo.fail_jobs([failure(claim)])
    assert await submit(store, a_unique_job(LIVE)) == Submitted(first, True), "it is retried"

    await store.repo.complete_jobs([await store.claim_again(first)])
    await submitted(store, LIVE)
    assert (await store.job(first)).unique_key == "shop-7"


@pytest.mark.parametrize("unique", [SKIP, LIVE])
async def test_canceled_job_frees_its_key(store: Store, unique: Unique) -> None:
    first = await submitted(store, unique)
    await store.repo.cancel_jobs([first], "")

    await submitted(store, unique)


async def test_waiting_job_takes_payload_and_options_of_the_one_that_replaces_it(store: Store) -> None:
    first = await submitted(store, REPLACE, metadata={"by": "a"})
    before = await store.job(first)
    options = {"priority": 9, "max_attempts": 3, "metadata": {"by": "b"}, "start_within": HOUR}
    answer = await submit(store, a_unique_job(REPLACE, payload=b"2", **options))

    assert answer == Submitted(first, True, is_replaced=True)
    job = await store.job(first)
    assert (job.payload, job.priority, job.max_attempts, job.metadata) == (b"2", 9, 3, {"by": "b"})
    assert (job.submitted_at, job.next_run_at, job.ready) == (before.submitted_at, before.next_run_at, True)
    assert job.start_by == job.next_run_at + HOUR


async def test_job_that_has_started_is_not_replaced(store: Store) -> None:
    first = await submitted(store, REPLACE)
    await store.claim()
    await submitted(store, REPLACE, payload=b"2")

    assert (await store.job(first)).payload == b"{}"


async def test_replaced_job_starts_no_later_than_either_asked_for(store: Store) -> None:
    first = await submitted(store, REPLACE, delay=2 * HOUR)
    await submit(store, a_unique_job(REPLACE, delay=HOUR))
    earlier = await store.job(first)
    assert earlier.next_run_at - earlier.submitted_at < HOUR + timedelta(minutes=5)
    await submit(store, a_unique_job(REPLACE, delay=3 * HOUR))
    assert (await store.job(first)).next_run_at == earlier.next_run_at
    assert await store.claim() == []

    await submit(store, a_unique_job(REPLACE))
    assert [claim.job_id for claim in await store.claim()] == [first], "at once"


async def test_debounced_job_waits_for_a_period_after_the_last_submit(store: Store) -> None:
    first = await submitted(store, DEBOUNCE)
    before = (await store.job(first)).next_run_at
    assert await submit(store, a_unique_job(DEBOUNCE, payload=b"2")) == Submitted(
        first, True, is_replaced=True
    )

    job = await store.job(first)
    assert (job.payload, job.ready) == (b"2", False)
    assert job.next_run_at >= before


async def test_retried_job_that_is_replaced_has_the_attempts_of_the_new_one_ahead(store: Store) -> None:
    """With the bare number it could not be claimed, and every claim of its topic would fail."""
    live = REPLACE._replace(scope=Scope.LIVE)
    first = await submitted(store, live)
    (claim,) = await store.claim()
    await store.repo.fail_jobs([failure(claim, discard=True)])
    await store.repo.retry_jobs([first], 5)
    await submit(store, a_unique_job(live, max_attempts=1))

    job = await store.job(first)
    assert (job.attempts, job.max_attempts) == (1, 2)
    assert [claim.job_id for claim in await store.claim()] == [first]


async def test_debounce_ends_after_its_longest(store: Store) -> None:
    first = await submitted(store, DEBOUNCE._replace(longest=HOUR))
    before = (await store.job(first)).next_run_at
    await submit(store, a_unique_job(DEBOUNCE._replace(longest=HOUR)))

    job = await store.job(first)
    assert job.next_run_at == job.submitted_at + HOUR
    assert job.next_run_at <= before


async def test_debounced_job_that_is_due_stays_due(store: Store) -> None:
    first = await submitted(store, DEBOUNCE)
    await store.time.make_due(first)
    await store.repo.promote_due(10)
    await submit(store, a_unique_job(DEBOUNCE, payload=b"2"))

    assert [claim.job_id for claim in await store.claim()] == [first]
    assert (await store.job(first)).payload == b"2"


async def test_throttled_key_has_one_job_in_a_period(store: Store) -> None:
    first = await submitted(store, THROTTLE)
    await store.repo.complete_jobs(await store.claim())
    assert await submit(store, a_unique_job(THROTTLE)) == Submitted(first, True)
    assert await submit(store, a_unique_job(THROTTLE._replace(key="shop-8"))) != Submitted(first, True)

    await store.repo.delete_jobs([first])
    assert await submit(store, a_unique_job(THROTTLE)) == Submitted(first, True), "also if it is gone"


async def test_throttled_job_that_still_waits_has_no_second_one_after_the_period(store: Store) -> None:
    short = THROTTLE._replace(period=timedelta(microseconds=1))
    first = await submitted(store, short)
    assert await submit(store, a_unique_job(short)) == Submitted(first, True)
    await store.claim()

    await submitted(store, short)


async def test_repeat_with_the_same_id_is_that_job(store: Store) -> None:
    job = a_unique_job(REPLACE)
    await submit(store, job)
    await submit(store, a_unique_job(REPLACE, payload=b"2"))

    assert await submit(store, job) == Submitted(job.id, True)
    assert (await store.job(job.id)).payload == b"2", "the repeat replaced nothing"
    await store.repo.complete_jobs(await store.claim())
    assert await submit(store, job) == Submitted(job.id, True), "also when it is completed"


@pytest.mark.parametrize("unique", [SKIP, LIVE, REPLACE, DEBOUNCE, THROTTLE])
async def test_of_a_batch_with_one_key_the_first_is_stored(store: Store, unique: Unique) -> None:
    jobs = [a_unique_job(unique, payload=b"%d" % place) for place in range(5)]
    first, *others = await store.repo.insert_rich_jobs(jobs)

    assert first == Submitted(jobs[0].id, False)
    assert others == [Submitted(jobs[0].id, True, is_replaced=unique.replaces)] * 4
    assert (await store.job(jobs[0].id)).payload == (b"4" if unique.replaces else b"0"), "the last one wins"


async def test_redriven_job_waits_without_its_key(store: Store) -> None:
    first = await submitted(store)
    await store.repo.cancel_jobs([first], "")
    second = await submitted(store)

    assert [job.id for job in await store.repo.retry_jobs([first], 1)] == [first]
    assert (await store.job(first)).unique_scope is None
    assert await submit(store, a_unique_job()) == Submitted(second, True)


async def test_job_whose_live_key_is_taken_is_not_redriven(store: Store) -> None:
    first = await submitted(store, LIVE)
    await store.repo.cancel_jobs([first], "")
    second = await submitted(store, LIVE)
    (plain,) = await store.submit(a_job())
    await store.repo.cancel_jobs([plain], "")

    assert [job.id for job in await store.repo.retry_jobs([first, plain], 1)] == [plain]
    assert await store.repo.unique_holders([first, plain]) == {first: UniqueHolder(second, "shop-7")}
    await store.repo.cancel_jobs([second], "")
    assert [job.id for job in await store.repo.retry_jobs([first], 1)] == [first]
    assert await submit(store, a_unique_job(LIVE)) == Submitted(first, True), "it holds its key again"


async def test_of_redriven_jobs_with_one_live_key_one_lives(store: Store) -> None:
    finished = []
    for _ in range(3):
        finished.append(await submitted(store, LIVE))
        await store.repo.cancel_jobs(finished[-1:], "")

    assert len(await store.repo.retry_jobs(finished, 1)) == 1
    assert len(await store.repo.unique_holders(finished)) == 2


async def test_idempotency_key_is_apart_and_comes_first(store: Store) -> None:
    first = await submitted(store, idempotency_key="order-1")
    await store.claim()

    repeat = a_unique_job(idempotency_key="order-1", payload=b"{}")
    assert await submit(store, repeat) == Submitted(first, True), "it names one submit, whatever became of it"
    other = a_job(id=new_id(), idempotency_key="order-1", payload=b"2", unique=Unique("shop-8"))
    assert isinstance((await store.repo.insert_rich_jobs([other]))[0], AlreadyExists)
