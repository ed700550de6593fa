"""Starts and holds count on when a topic changes its pool, or loses its limit and gets it again. ADR-0064"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse.topic_settings import Rate
from tests.fakes.store import a_job
from tests.postgres.limited import TOPIC, Limited, in_lane

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
RATE = Rate(10, HOUR)
OWN: dict[str, Any] = {}
POOL, OTHER = {"pool": "gpu"}, {"pool": "cpu"}


async def hours_pass(limited: Limited) -> None:
    """Let all starts grow older than their periods."""
    for table in ("pools", "limit_policies", "lanes"):
        await limited.connection.execute(f"UPDATE pulse.{table} SET slice = slice - 100 WHERE slice > 0")
    await limited.connection.execute("UPDATE pulse.lanes SET used_at = used_at - interval '3 hours'")


@pytest.mark.parametrize(
    ("before", "after"), [(OWN, POOL), (POOL, OWN), (POOL, OTHER)], ids=["in", "out", "to another"]
)
async def test_topic_that_changes_its_pool_takes_its_starts_along(
    limited: Limited, before: dict[str, Any], after: dict[str, Any]
) -> None:
    await limited.limit_topic(rate=RATE, **before)
    await limited.submit(*(a_job(TOPIC) for _ in range(40)))
    assert len(await limited.claim(7)) == 7

    await limited.limit_topic(rate=RATE, **after)

    assert len(await limited.claim(40)) == 3
    await limited.limit_topic(rate=RATE, **before)
    assert await limited.claim(40) == []
    await hours_pass(limited)
    assert len(await limited.claim(40)) == 10


async def test_topic_takes_only_its_own_starts_along(limited: Limited) -> None:
    """Topics that move to a new pool one after the other bring what the old one had counted."""
    topics = ("train", "render", "encode")
    for topic in topics:
        await limited.limit_topic(topic, rate=RATE, **POOL)
        await limited.submit(*(a_job(topic) for _ in range(20)))
    for topic in topics:
        assert len(await limited.claim(2, topic)) == 2

    for topic in topics:
        await limited.limit_topic(topic, rate=RATE, **OTHER)

    assert len(await limited.claim(40, *topics)) == 4


async def test_starts_of_another_period_count_for_a_whole_one_in_the_new_pool(limited: Limited) -> None:
    await limited.limit_topic("train", rate=Rate(10, MINUTE), **POOL)
    await limited.limit_topic("render", rate=Rate(10, MINUTE), **POOL)
    await limited.submit(*(a_job("train") for _ in range(40)))
    assert len(await limited.claim(4, "train")) == 4
    # The period of its pool changes first.
    await limited.limit_topic("render", rate=Rate(10, 2 * MINUTE), **POOL)
    assert len(await limited.claim(2, "train")) == 2

    await limited.limit_topic("train", rate=RATE, **OTHER)

    assert len(await limited.claim(40, "train")) == 4


@pytest.mark.parametrize("first", [OWN, POOL])
async def test_rate_that_is_removed_and_set_again_counts_its_starts(
    limited: Limited, first: dict[str, Any]
) -> None:
    await limited.limit_topic(rate=RATE, **first)
    await limited.submit(*(a_job(TOPIC) for _ in range(40)))
    assert len(await limited.claim(7)) == 7

    await limited.limit_topic(running=100)
    await limited.limit_topic(rate=RATE, running=100)
    assert len(await limited.claim(40)) == 3

    await limited.limits.retire(TOPIC)
    assert len(await limited.claim(5)) == 5, "it has no limit now"
    assert await limited.limits.remove_retired() == [], "its starts would count again"
    await limited.limit_topic(rate=RATE)
    assert await limited.claim(40) == []

    await limited.limits.retire(TOPIC)
    await hours_pass(limited)
    assert await limited.limits.remove_retired() == [TOPIC]


@pytest.mark.parametrize("between", [{"turns": True}, {"running": 100}, None], ids=str)
async def test_rate_of_lanes_that_is_removed_and_set_again_counts_its_starts(
    limited: Limited, between: dict[str, Any] | None
) -> None:
    await limited.limit_topic(lane_rate=RATE)
    await limited.submit(*(in_lane(lane) for lane in ("a", "b") for _ in range(20)))
    assert len(await limited.claim(14)) == 14

    if between is None:
        await limited.limits.retire(TOPIC)
        assert await limited.claim(0) == []
        assert await limited.limits.remove_retired() == []
    else:
        await limited.limit_topic(**between)
    await limited.limit_topic(lane_rate=RATE)

    assert len(await limited.claim_all()) == 6
    assert await limited.agrees()
    await limited.limits.retire(TOPIC)
    await limited.claim(0)
    await hours_pass(limited)
    assert await limited.limits.remove_retired() == [TOPIC]
    assert await limited.connection.fetchval("SELECT count(*) FROM pulse.lanes") == 0


async def test_topic_that_changes_its_pool_stays_held_alone(limited: Limited) -> None:
    await limited.limit_topic("train", running=9, **POOL)
    await limited.limit_topic("render", running=9, **OTHER)
    await limited.submit(a_job("train"), a_job("render"))
    await limited.limits.hold("train", HOUR, by_operator=True)

    await limited.limit_topic("train", running=9, **OTHER)

    claims = await limited.claims(5, "train", "render")
    assert [job.topic for job in claims.jobs] == ["render"]
    assert claims.next_starts["train"] > 3000
    listed = await limited.limits.list_limits(limit=5)
    assert [limits.topic for limits in listed if limits.closed_until] == ["train"]
    await limited.limit_topic("train", running=9)
    assert await limited.claim(5, "train") == []
    await limited.limits.hold("train", timedelta(0), by_operator=False)
    assert await limited.claim(5, "train") == [], "a worker has ended the hold of an operator"
    assert await limited.limits.hold("train", timedelta(0), by_operator=True)
    assert len(await limited.claim(5, "train")) == 1


async def test_hold_outlives_a_limit_that_is_removed_and_set_again(limited: Limited) -> None:
    await limited.limit_topic(running=5)
    await limited.submit(*(a_job(TOPIC) for _ in range(3)))
    await limited.limits.hold(TOPIC, HOUR, by_operator=True)

    await limited.limits.retire(TOPIC)
    assert await limited.limits.remove_retired() == []
    assert len(await limited.claim(1)) == 1, "without a limit it cannot be held"
    await limited.limit_topic(running=5)

    assert await limited.claim(5) == []
