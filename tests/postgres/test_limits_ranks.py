"""A change of aging holds for the jobs that stand in lanes already: claims rank them anew."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.postgres.limited import Limited, in_lane
from tests.postgres.sessions import Connection

MINUTE = timedelta(minutes=1)
LARGEST_PRIORITY = 2**31 - 1


async def starts(limited: Limited) -> list[str]:
    """Run all jobs one after the other. Returns them in the order of their starts."""
    order = []
    while claims := await limited.claim_all():
        order += [claim.job_id for claim in claims]
        await limited.complete(*claims)
    return order


@pytest.mark.parametrize("entries", [{"ordered": True}, {"per_lane": 1}], ids=["ordered", "unordered"])
async def test_priorities_are_strict_again_for_waiting_jobs_once_their_aging_is_gone(
    limited: Limited, entries: dict[str, object]
) -> None:
    await limited.limit_topic(aging=timedelta(microseconds=1), **entries)
    (low,) = await limited.submit(in_lane("a", priority=-1))
    (first,) = await limited.submit(in_lane("a"))
    (urgent,) = await limited.submit(in_lane("a", priority=3))

    await limited.limit_topic(**entries)

    assert await starts(limited) == [urgent, first, low]
    assert await limited.agrees()


async def test_waiting_jobs_age_once_their_topic_has_aging(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    (low,) = await limited.submit(in_lane("a", priority=-1))
    await limited.connection.execute("UPDATE pulse.jobs SET submitted_at = submitted_at - interval '1 hour'")

    await limited.limit_topic(per_lane=1, aging=MINUTE)
    (new,) = await limited.submit(in_lane("a", priority=5))

    assert await starts(limited) == [low, new]


async def test_thousands_of_waiting_jobs_are_ranked_anew_lane_by_lane(limited: Limited) -> None:
    await limited.limit_topic(turns=True, aging=MINUTE)
    lanes = [f"lane-{number}" for number in range(3)]
    await limited.submit(*(in_lane(lane, priority=-1) for lane in lanes for _ in range(1200)))
    urgent = await limited.submit(*(in_lane(lane, priority=1) for lane in lanes))
    await limited.connection.execute("UPDATE pulse.jobs SET submitted_at = now() WHERE priority = 1")

    await limited.limit_topic(turns=True)
    for _ in range(10):
        await limited.claims(0)

    ranks = "SELECT count(*) FROM pulse.jobs WHERE (tier, rank_at) IS DISTINCT FROM (priority, submitted_at)"
    assert await limited.connection.fetchval(ranks) == 0
    assert {claim.job_id for claim in await limited.claim(12)} >= set(urgent)
    ranked = await limited.connection.fetchval("SELECT ranked_lane FROM pulse.limit_policies")
    assert ranked is None, "further claims do not look for jobs to rank"


async def test_locked_job_of_an_ordered_lane_is_not_passed_before_it_is_ranked_anew(
    limited: Limited, rival: Connection
) -> None:
    await limited.limit_topic(ordered=True, aging=timedelta(microseconds=1))
    (first,) = await limited.submit(in_lane("b"))
    (urgent,) = await limited.submit(in_lane("b", priority=3))
    (other,) = await limited.submit(in_lane("a"))
    await rival.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", urgent)
    await limited.limit_topic(ordered=True)

    assert await starts(limited) == [other]

    await rival.execute("ROLLBACK")
    await limited.waits_are_over()
    assert await starts(limited) == [urgent, first]


@pytest.mark.parametrize(
    "entries", [{}, {"ordered": True}, {"per_lane": 1}, {"pool": "gpu", "running": 9}], ids=str
)
@pytest.mark.parametrize("lane", [None, "a"])
async def test_priority_that_aging_takes_beyond_every_timestamp_stops_no_claim(
    limited: Limited, entries: dict[str, object], lane: str | None
) -> None:
    await limited.limit_topic(aging=timedelta(days=365), **entries)
    first = await limited.submit(in_lane(lane, priority=LARGEST_PRIORITY))
    last = await limited.submit(in_lane(lane, priority=-LARGEST_PRIORITY - 1))
    delayed = await limited.submit(
        *(in_lane(lane, priority=priority, delay=MINUTE) for priority in (LARGEST_PRIORITY - 1, 0))
    )
    await limited.promote(*delayed)

    order = await starts(limited)

    assert order == [*first, *delayed, *last]
    await limited.submit(in_lane(lane, priority=-LARGEST_PRIORITY - 1), in_lane(lane, priority=1))
    await limited.limit_topic(aging=timedelta(minutes=5), **entries)
    assert len(await starts(limited)) == 2
    assert await limited.agrees()


@pytest.mark.parametrize("entries", [{"running": 9}, {"turns": True}, {"ordered": True}], ids=str)
async def test_priorities_at_the_ends_of_their_range_are_in_order_without_aging(
    limited: Limited, entries: dict[str, object]
) -> None:
    priorities = (-LARGEST_PRIORITY - 1, 0, LARGEST_PRIORITY)
    lowest, usual, highest = [
        job for priority in priorities for job in await limited.submit(in_lane("a", priority=priority))
    ]
    await limited.limit_topic(**entries)

    assert await starts(limited) == [highest, usual, lowest]
