"""Jobs of lanes that are tried again, released, redriven or canceled."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.domain.status import JobStatus
from tests.fakes.store import failure
from tests.postgres.governed import Governed, in_lane

HOUR = timedelta(hours=1)


async def test_job_that_is_tried_again_comes_back_to_its_lane(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    (job_id,) = await governed.submit(in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    assert await governed.claim_all() == []

    await governed.promote(job_id)

    (again,) = await governed.claim_all()
    assert (again.job_id, again.attempt) == (job_id, 2)
    assert await governed.agrees()


async def test_released_job_of_a_lane_without_a_limit_is_found_again(governed: Governed) -> None:
    """The lane had no more work, and has left the line."""
    await governed.govern(turns=True)
    await governed.submit(in_lane("a"))
    claims = await governed.claim_all()

    assert await governed.store.repo.release_jobs(claims)

    assert await governed.claim_all() == [claims[0]._replace(run=2)]


async def test_redriven_job_comes_back_to_its_lane(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    (job_id,) = await governed.submit(in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, discard=True)])
    assert await governed.store.status(job_id) is JobStatus.DEAD_LETTERED

    assert await governed.store.repo.retry_jobs([job_id], 3)

    assert [again.job_id for again in await governed.claim_all()] == [job_id]


async def test_retry_holds_its_lane_where_order_is_kept(governed: Governed) -> None:
    await governed.govern(ordered=True)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))
    (other,) = await governed.submit(in_lane("b"))
    claims = {claim.job_id: claim for claim in await governed.claim_all()}
    assert claims.keys() == {first, other}
    await governed.store.repo.fail_jobs([failure(claims[first], retry_after=HOUR)])

    assert await governed.claim_all() == [], "the second job waits for the first"

    await governed.promote(first)
    await governed.waits_are_over()
    (again,) = await governed.claim_all()
    assert again.job_id == first
    await governed.complete(again)
    assert [claim.job_id for claim in await governed.claim_all()] == [second]
    assert await governed.agrees()


async def test_canceled_retry_holds_its_lane_no_longer(governed: Governed) -> None:
    await governed.govern(ordered=True)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    assert await governed.claim_all() == []

    assert await governed.store.repo.cancel_jobs([first], "")

    assert [claim.job_id for claim in await governed.claim_all()] == [second]


async def test_released_job_holds_its_lane_where_order_is_kept(governed: Governed) -> None:
    """Its worker was stopped after the claim. A job of a higher priority came before the next one."""
    await governed.govern(ordered=True)
    (first,) = await governed.submit(in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    await governed.claim_all()
    await governed.promote(first)
    await governed.waits_are_over()
    (again,) = await governed.claim_all()
    assert again.attempt == 2

    assert await governed.store.repo.release_jobs([again])
    (urgent,) = await governed.submit(in_lane("a", priority=5))

    (again,) = await governed.claim_all()
    assert again.job_id == first
    await governed.complete(again)
    assert [claim.job_id for claim in await governed.claim_all()] == [urgent]
    assert await governed.agrees()


async def test_each_of_several_retries_holds_its_lane_once_order_is_kept(governed: Governed) -> None:
    """They ran at once when their topic became ordered."""
    await governed.govern(per_lane=2)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))
    claims = await governed.claim_all()
    await governed.govern(ordered=True)
    (urgent,) = await governed.submit(in_lane("a", priority=5))
    for claim in claims:
        await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
        assert await governed.claim_all() == []

    order = []
    for job_id in (second, first):
        await governed.promote(job_id)
    for _ in range(3):
        await governed.waits_are_over()
        (claim,) = await governed.claim_all()
        order.append(claim.job_id)
        await governed.complete(claim)

    assert order == [first, second, urgent]
    assert await governed.agrees()


async def test_canceled_retry_leaves_the_lane_to_another_that_holds_it(governed: Governed) -> None:
    await governed.govern(per_lane=2)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))
    claims = await governed.claim_all()
    await governed.govern(ordered=True)
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR) for claim in claims])
    await governed.submit(in_lane("a", priority=5))
    assert await governed.claim_all() == []
    await governed.promote(second)

    assert await governed.store.repo.cancel_jobs([first], "")

    assert [claim.job_id for claim in await governed.claim_all()] == [second]


async def test_job_that_failed_before_order_was_kept_comes_back_by_its_rank(governed: Governed) -> None:
    """It holds no lane: others may have passed it already."""
    await governed.govern(per_lane=1)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    (running,) = await governed.claim_all()
    assert running.job_id == second

    await governed.govern(ordered=True)
    (urgent,) = await governed.submit(in_lane("a", priority=5))
    (third,) = await governed.submit(in_lane("a"))
    await governed.complete(running)
    await governed.promote(first)

    order = []
    while claims := await governed.claim_all():
        order += [claim.job_id for claim in claims]
        await governed.complete(*claims)
    assert order == [urgent, first, third]
    assert await governed.agrees()
