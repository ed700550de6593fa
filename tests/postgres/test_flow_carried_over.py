"""Starts and holds count on when a topic changes its pool, or loses its limit and gets it again. ADR-0064"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_server.domain.flow import Rate
from tests.fakes.store import a_job
from tests.postgres.governed import TOPIC, Governed, in_lane

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
RATE = Rate(10, HOUR)
OWN: dict[str, Any] = {}
POOL, OTHER = {"pool": "gpu"}, {"pool": "cpu"}


async def hours_pass(governed: Governed) -> None:
    """Let all starts grow older than their periods."""
    for table in ("turnstiles", "flow_policies", "lanes"):
        await governed.connection.execute(f"UPDATE pulse.{table} SET slice = slice - 100 WHERE slice > 0")
    await governed.connection.execute("UPDATE pulse.lanes SET used_at = used_at - interval '3 hours'")


@pytest.mark.parametrize(
    ("before", "after"), [(OWN, POOL), (POOL, OWN), (POOL, OTHER)], ids=["in", "out", "to another"]
)
async def test_topic_that_changes_its_pool_takes_its_starts_along(
    governed: Governed, before: dict[str, Any], after: dict[str, Any]
) -> None:
    await governed.govern(rate=RATE, **before)
    await governed.submit(*(a_job(TOPIC) for _ in range(40)))
    assert len(await governed.claim(7)) == 7

    await governed.govern(rate=RATE, **after)

    assert len(await governed.claim(40)) == 3
    await governed.govern(rate=RATE, **before)
    assert await governed.claim(40) == []
    await hours_pass(governed)
    assert len(await governed.claim(40)) == 10


async def test_topic_takes_only_its_own_starts_along(governed: Governed) -> None:
    """Topics that move to a new pool one after the other bring what the old one had counted."""
    topics = ("train", "render", "encode")
    for topic in topics:
        await governed.govern(topic, rate=RATE, **POOL)
        await governed.submit(*(a_job(topic) for _ in range(20)))
    for topic in topics:
        assert len(await governed.claim(2, topic)) == 2

    for topic in topics:
        await governed.govern(topic, rate=RATE, **OTHER)

    assert len(await governed.claim(40, *topics)) == 4


async def test_starts_of_another_period_count_for_a_whole_one_in_the_new_pool(governed: Governed) -> None:
    await governed.govern("train", rate=Rate(10, MINUTE), **POOL)
    await governed.govern("render", rate=Rate(10, MINUTE), **POOL)
    await governed.submit(*(a_job("train") for _ in range(40)))
    assert len(await governed.claim(4, "train")) == 4
    # The period of its pool changes first.
    await governed.govern("render", rate=Rate(10, 2 * MINUTE), **POOL)
    assert len(await governed.claim(2, "train")) == 2

    await governed.govern("train", rate=RATE, **OTHER)

    assert len(await governed.claim(40, "train")) == 4


@pytest.mark.parametrize("first", [OWN, POOL])
async def test_rate_that_is_removed_and_set_again_counts_its_starts(
    governed: Governed, first: dict[str, Any]
) -> None:
    await governed.govern(rate=RATE, **first)
    await governed.submit(*(a_job(TOPIC) for _ in range(40)))
    assert len(await governed.claim(7)) == 7

    await governed.govern(limit=100)
    await governed.govern(rate=RATE, limit=100)
    assert len(await governed.claim(40)) == 3

    await governed.flow.retire(TOPIC)
    assert len(await governed.claim(5)) == 5, "it has no limit now"
    assert await governed.flow.remove_retired() == [], "its starts would count again"
    await governed.govern(rate=RATE)
    assert await governed.claim(40) == []

    await governed.flow.retire(TOPIC)
    await hours_pass(governed)
    assert await governed.flow.remove_retired() == [TOPIC]


@pytest.mark.parametrize("between", [{"turns": True}, {"limit": 100}, None], ids=str)
async def test_rate_of_lanes_that_is_removed_and_set_again_counts_its_starts(
    governed: Governed, between: dict[str, Any] | None
) -> None:
    await governed.govern(lane_rate=RATE)
    await governed.submit(*(in_lane(lane) for lane in ("a", "b") for _ in range(20)))
    assert len(await governed.claim(14)) == 14

    if between is None:
        await governed.flow.retire(TOPIC)
        assert await governed.claim(0) == []
        assert await governed.flow.remove_retired() == []
    else:
        await governed.govern(**between)
    await governed.govern(lane_rate=RATE)

    assert len(await governed.claim_all()) == 6
    assert await governed.agrees()
    await governed.flow.retire(TOPIC)
    await governed.claim(0)
    await hours_pass(governed)
    assert await governed.flow.remove_retired() == [TOPIC]
    assert await governed.connection.fetchval("SELECT count(*) FROM pulse.lanes") == 0


async def test_topic_that_changes_its_pool_stays_held_alone(governed: Governed) -> None:
    await governed.govern("train", limit=9, **POOL)
    await governed.govern("render", limit=9, **OTHER)
    await governed.submit(a_job("train"), a_job("render"))
    await governed.flow.hold("train", HOUR, by_operator=True)

    await governed.govern("train", limit=9, **OTHER)

    claims = await governed.claims(5, "train", "render")
    assert [job.topic for job in claims.jobs] == ["render"]
    assert claims.next_starts["train"] > 3000
    listed = await governed.flow.list_limits(limit=5)
    assert [limits.topic for limits in listed if limits.closed_until] == ["train"]
    await governed.govern("train", limit=9)
    assert await governed.claim(5, "train") == []
    await governed.flow.hold("train", timedelta(0), by_operator=False)
    assert await governed.claim(5, "train") == [], "a worker has ended the hold of an operator"
    assert await governed.flow.hold("train", timedelta(0), by_operator=True)
    assert len(await governed.claim(5, "train")) == 1


async def test_hold_outlives_a_limit_that_is_removed_and_set_again(governed: Governed) -> None:
    await governed.govern(limit=5)
    await governed.submit(*(a_job(TOPIC) for _ in range(3)))
    await governed.flow.hold(TOPIC, HOUR, by_operator=True)

    await governed.flow.retire(TOPIC)
    assert await governed.flow.remove_retired() == []
    assert len(await governed.claim(1)) == 1, "without a limit it cannot be held"
    await governed.govern(limit=5)

    assert await governed.claim(5) == []
