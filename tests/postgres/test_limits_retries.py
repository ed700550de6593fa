"""Jobs of lanes that are tried again, released, redriven or canceled."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.jobs.rules import JobStatus
from tests.fakes.store import failure
from tests.postgres.limited import Limited, in_lane

HOUR = timedelta(hours=1)


async def test_job_that_is_tried_again_comes_back_to_its_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    (job_id,) = await limited.submit(in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    assert await limited.claim_all() == []

    await limited.promote(job_id)

    (again,) = await limited.claim_all()
    assert (again.job_id, again.attempt) == (job_id, 2)
    assert await limited.agrees()


async def test_released_job_of_a_lane_without_a_limit_is_found_again(limited: Limited) -> None:
    """The lane had no more work, and has left the line."""
    await limited.limit_topic(turns=True)
    await limited.submit(in_lane("a"))
    claims = await limited.claim_all()

    assert await limited.store.repo.release_jobs(claims)

    assert await limited.claim_all() == [claims[0]._replace(run=2)]


async def test_redriven_job_comes_back_to_its_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    (job_id,) = await limited.submit(in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, discard=True)])
    assert await limited.store.status(job_id) is JobStatus.DEAD_LETTERED

    assert await limited.store.repo.retry_jobs([job_id], 3)

    assert [again.job_id for again in await limited.claim_all()] == [job_id]


async def test_retry_holds_its_lane_where_order_is_kept(limited: Limited) -> None:
    await limited.limit_topic(ordered=True)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    (other,) = await limited.submit(in_lane("b"))
    claims = {claim.job_id: claim for claim in await limited.claim_all()}
    assert claims.keys() == {first, other}
    await limited.store.repo.fail_jobs([failure(claims[first], retry_after=HOUR)])

    assert await limited.claim_all() == [], "the second job waits for the first"

    await limited.promote(first)
    await limited.waits_are_over()
    (again,) = await limited.claim_all()
    assert again.job_id == first
    await limited.complete(again)
    assert [claim.job_id for claim in await limited.claim_all()] == [second]
    assert await limited.agrees()


async def test_canceled_retry_holds_its_lane_no_longer(limited: Limited) -> None:
    await limited.limit_topic(ordered=True)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    assert await limited.claim_all() == []

    assert await limited.store.repo.cancel_jobs([first], "")

    assert [claim.job_id for claim in await limited.claim_all()] == [second]


async def test_released_job_holds_its_lane_where_order_is_kept(limited: Limited) -> None:
    """Its worker was stopped after the claim. A job of a higher priority came before the next one."""
    await limited.limit_topic(ordered=True)
    (first,) = await limited.submit(in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    await limited.claim_all()
    await limited.promote(first)
    await limited.waits_are_over()
    (again,) = await limited.claim_all()
    assert again.attempt == 2

    assert await limited.store.repo.release_jobs([again])
    (urgent,) = await limited.submit(in_lane("a", priority=5))

    (again,) = await limited.claim_all()
    assert again.job_id == first
    await limited.complete(again)
    assert [claim.job_id for claim in await limited.claim_all()] == [urgent]
    assert await limited.agrees()


async def test_each_of_several_retries_holds_its_lane_once_order_is_kept(limited: Limited) -> None:
    """They ran at once when their topic became ordered."""
    await limited.limit_topic(per_lane=2)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    claims = await limited.claim_all()
    await limited.limit_topic(ordered=True)
    (urgent,) = await limited.submit(in_lane("a", priority=5))
    for claim in claims:
        await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
        assert await limited.claim_all() == []

    order = []
    for job_id in (second, first):
        await limited.promote(job_id)
    for _ in range(3):
        await limited.waits_are_over()
        (claim,) = await limited.claim_all()
        order.append(claim.job_id)
        await limited.complete(claim)

    assert order == [first, second, urgent]
    assert await limited.agrees()


async def test_canceled_retry_leaves_the_lane_to_another_that_holds_it(limited: Limited) -> None:
    await limited.limit_topic(per_lane=2)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    claims = await limited.claim_all()
    await limited.limit_topic(ordered=True)
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR) for claim in claims])
    await limited.submit(in_lane("a", priority=5))
    assert await limited.claim_all() == []
    await limited.promote(second)

    assert await limited.store.repo.cancel_jobs([first], "")

    assert [claim.job_id for claim in await limited.claim_all()] == [second]


async def test_job_that_failed_before_order_was_kept_comes_back_by_its_rank(limited: Limited) -> None:
    """It holds no lane: others may have passed it already."""
    await limited.limit_topic(per_lane=1)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    (running,) = await limited.claim_all()
    assert running.job_id == second

    await limited.limit_topic(ordered=True)
    (urgent,) = await limited.submit(in_lane("a", priority=5))
    (third,) = await limited.submit(in_lane("a"))
    await limited.complete(running)
    await limited.promote(first)

    order = []
    while claims := await limited.claim_all():
        order += [claim.job_id for claim in claims]
        await limited.complete(*claims)
    assert order == [urgent, first, third]
    assert await limited.agrees()
