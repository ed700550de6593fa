"""Lanes that keep their order: locked rows, changes by operators, and a backlog outside of its lanes."""

from __future__ import annotations

from datetime import timedelta

from tests.fakes.store import failure
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)


async def test_first_job_of_an_ordered_lane_is_not_passed_while_another_session_has_it_locked(
    limited: Limited, rival: Connection
) -> None:
    await limited.limit_topic(ordered=True)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    (other,) = await limited.submit(in_lane("b"))
    await rival.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", first)

    assert [claim.job_id for claim in await limited.claim(10)] == [other]

    await rival.execute("ROLLBACK")
    await limited.waits_are_over()
    (claim,) = await limited.claim_all()
    assert claim.job_id == first
    await limited.complete(claim)
    assert [claim.job_id for claim in await limited.claim_all()] == [second]
    assert await limited.agrees()


async def test_lane_that_gets_a_weight_keeps_the_order_of_another_with_a_retry(limited: Limited) -> None:
    await limited.limit_topic(ordered=True)
    first, _second = await limited.submit(in_lane("a"), in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])

    assert await limited.limits.set_lane(TOPIC, "b", 3, None)

    assert await limited.claim_all() == [], "the second job waits for the first"
    await limited.promote(first)
    await limited.waits_are_over()
    assert [claim.job_id for claim in await limited.claim_all()] == [first]


async def test_new_job_of_an_ordered_lane_does_not_pass_the_backlog_from_before_the_policy(
    limited: Limited,
) -> None:
    await limited.submit(*(in_lane(f"filler-{number}") for number in range(1500)))
    (old,) = await limited.submit(in_lane("a"))
    await limited.limit_topic(ordered=True)
    (new,) = await limited.submit(in_lane("a"))

    order = [claim.job_id for claim in await limited.claim_all() if claim.job_id in (old, new)]

    assert order == [old]


async def test_job_that_could_not_enter_its_ordered_lane_is_not_passed(
    limited: Limited, rival: Connection
) -> None:
    """It got another priority, so that it has to enter its lane anew, and another session has locked it."""
    await limited.limit_topic(ordered=True)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    await limited.store.repo.prioritize_jobs([first], 1)
    await rival.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", first)

    assert await limited.claim_all() == []

    await rival.execute("ROLLBACK")
    await limited.waits_are_over()
    (claim,) = await limited.claim_all()
    assert claim.job_id == first
    await limited.complete(claim)
    assert [claim.job_id for claim in await limited.claim_all()] == [second]


async def test_lane_with_a_limit_of_its_own_runs_one_job_at_a_time_once_order_is_kept(
    limited: Limited,
) -> None:
    await limited.limit_topic(per_lane=1)
    assert await limited.limits.set_lane(TOPIC, "a", 1, 3)
    await limited.submit(*(in_lane("a") for _ in range(5)))
    running = await limited.claim_all()
    assert len(running) == 3

    await limited.limit_topic(ordered=True)

    await limited.complete(*running[:2])
    assert await limited.claim_all() == []
    await limited.complete(*running[2:])
    assert len(await limited.claim_all()) == 1
    assert await limited.agrees()
