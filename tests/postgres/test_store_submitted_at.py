"""The answers to submits have the moments of their jobs."""

from __future__ import annotations

from pulse_server.jobs.new_jobs import OnConflict, Submitted, Unique
from tests.fakes.store import Store, a_job


async def test_answer_has_the_moment_of_the_submit(store: Store) -> None:
    job, others = a_job(idempotency_key="k"), [a_job(), a_job()]
    (answer,) = await store.repo.insert_jobs([job])
    (repeat,) = await store.repo.insert_jobs([a_job(idempotency_key="k")])
    together = await store.repo.insert_jobs(others)
    mixed = await store.repo.insert_jobs([job, a_job()])

    stored, first, second = [(await store.job(one.id)).submitted_at for one in (job, *others)]
    moments = [one.submitted_at for one in (answer, repeat, *together, *mixed) if isinstance(one, Submitted)]
    assert moments[:3] == [stored, stored, first]
    assert moments[3] in (first, second)
    assert moments[4] == stored
    assert moments[5] is not None


async def test_answer_for_a_unique_key_has_the_moment_of_its_holder(store: Store) -> None:
    keys = Unique("shop-7"), Unique("shop-7"), Unique("shop-7", on_conflict=OnConflict.REPLACE)
    answers = [(await store.repo.insert_rich_jobs([a_job(unique=unique)]))[0] for unique in keys]
    first, *_ = answers
    assert isinstance(first, Submitted)
    stored = (await store.job(first.job_id)).submitted_at
    assert [one.submitted_at for one in answers if isinstance(one, Submitted)] == [stored] * 3
