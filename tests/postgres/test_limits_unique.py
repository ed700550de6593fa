"""Unique jobs in lanes."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.jobs.new_jobs import NewJob, OnConflict, Submitted, Unique
from tests.postgres.limited import Limited, in_lane

REPLACE = Unique("shop-7", on_conflict=OnConflict.REPLACE)


async def submit(limited: Limited, job: NewJob) -> Submitted:
    (answer,) = await limited.store.repo.insert_rich_jobs([job])
    assert isinstance(answer, Submitted), answer
    return answer


async def test_unique_job_runs_within_the_limit_of_its_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    unique = in_lane("a", unique=REPLACE)
    assert await submit(limited, unique) == Submitted(unique.id, False)
    assert (await limited.store.job(unique.id)).lane == "a"
    (of_unique,) = await limited.claim(10)
    await limited.submit(in_lane("a"), in_lane("b"))

    (of_b,) = await limited.claim(10)
    assert (await limited.store.job(of_b.job_id)).lane == "b"
    await limited.complete(of_unique, of_b)
    assert len(await limited.claim(10)) == 1
    assert await limited.agrees()
    assert (await limited.store.job(unique.id)).lane == "a", "it keeps its lane once it is completed"


async def test_job_that_is_replaced_moves_to_the_lane_of_the_new_one(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(in_lane("full"))
    (first,) = await limited.claim(10)
    waiting = in_lane("full", unique=REPLACE)
    await submit(limited, waiting)
    assert await limited.claim(10) == [], "it stands in a lane that is full"

    answer = await submit(limited, in_lane("free", unique=REPLACE, payload=b"2"))
    assert answer == Submitted(waiting.id, True, is_replaced=True)
    (second,) = await limited.claim(10)
    assert second.job_id == waiting.id
    await limited.complete(first, second)
    assert await limited.claim(10) == []
    assert await limited.agrees()


async def test_throttled_job_leaves_no_place_in_its_lane(limited: Limited) -> None:
    throttle = Unique("shop-7", on_conflict=OnConflict.THROTTLE, period=timedelta(hours=1))
    await limited.limit_topic(per_lane=1)
    stored = in_lane("a", unique=throttle)
    await submit(limited, stored)
    assert await submit(limited, in_lane("b", unique=throttle)) == Submitted(stored.id, True)

    assert [claim.job_id for claim in await limited.claim(10)] == [stored.id]
    assert await limited.agrees()
