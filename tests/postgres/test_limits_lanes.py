"""Lanes: limits for each, and turns between them. ADR-0064"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import cycle

import pytest

from pulse.topic_settings import Rate
from tests.fakes.store import a_job
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)


async def lanes_of(limited: Limited, job_ids: list[str]) -> Counter[str | None]:
    return Counter([(await limited.store.job(job_id)).lane for job_id in job_ids])


async def test_lane_without_a_policy_is_stored_and_changes_nothing(limited: Limited) -> None:
    (job_id,) = await limited.submit(in_lane("customer-1", "email"))

    (claim,) = await limited.store.claim(topics=["email"])
    assert (await limited.store.job(job_id)).lane == "customer-1"
    await limited.complete(claim)
    assert (await limited.store.job(job_id)).lane == "customer-1", "completed jobs keep it"


async def test_no_more_jobs_of_a_lane_run_than_its_limit(limited: Limited) -> None:
    await limited.limit_topic(per_lane=2)
    await limited.submit(*(in_lane(lane) for lane in "aaaabbbbc"))

    running = await limited.claim_all()

    assert await lanes_of(limited, [claim.job_id for claim in running]) == {"a": 2, "b": 2, "c": 1}
    of_a = [claim for claim in running if (await limited.store.job(claim.job_id)).lane == "a"]
    await limited.complete(of_a[0])
    (more,) = await limited.claim_all()
    assert (await limited.store.job(more.job_id)).lane == "a"
    assert await limited.agrees()


async def test_jobs_without_a_lane_have_no_limit_of_a_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(*(in_lane(None) for _ in range(5)), in_lane("a"), in_lane("a"))

    assert len(await limited.claim_all()) == 6


async def test_lanes_take_turns(limited: Limited) -> None:
    """A lane with a thousand jobs does not delay the first job of another one."""
    await limited.limit_topic(turns=True)
    await limited.submit(*(in_lane("heavy") for _ in range(1000)))
    (light,) = await limited.submit(in_lane("light"))

    first = await limited.claim(10)
    second = await limited.claim(10)

    assert light in {claim.job_id for claim in first + second}


@pytest.mark.parametrize("rooms", [[1], [2], [3], [5], [100], [1, 9, 2, 70]], ids=str)
async def test_lanes_start_jobs_by_their_weights_however_few_slots_a_claim_has(
    limited: Limited, rooms: list[int]
) -> None:
    await limited.limit_topic(turns=True)
    await limited.limits.set_lane(TOPIC, "a", 10, None)
    await limited.limits.set_lane(TOPIC, "b", 2, None)
    await limited.submit(*(in_lane(lane) for lane in "abcd" for _ in range(500)))
    started = Counter[str | None]()
    slots = cycle(rooms)

    while started.total() < 560:
        claims = await limited.claims(next(slots))
        assert claims.jobs
        started.update(job.lane for job in claims.jobs)

    shares = {lane: round(14 * started[lane] / started.total(), 1) for lane in "abcd"}
    assert shares == pytest.approx({"a": 10, "b": 2, "c": 1, "d": 1}, abs=0.3)
    assert await limited.agrees()


async def test_rest_of_a_turn_is_taken_before_the_turns_of_others(limited: Limited) -> None:
    await limited.limit_topic(turns=True)
    await limited.limits.set_lane(TOPIC, "a", 3, None)
    await limited.submit(*(in_lane(lane) for lane in "ab" for _ in range(10)))

    order = [job.lane for _ in range(8) for job in (await limited.claims(1)).jobs]

    assert "".join(filter(None, order)) in ("aaabaaab", "baaabaaa")


async def test_priority_decides_within_a_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    _low, high = await limited.submit(in_lane("a", priority=1), in_lane("a", priority=5))
    (claim,) = await limited.claim_all()

    assert claim.job_id == high


async def test_job_that_got_another_priority_is_claimed_by_it(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    first, second = await limited.submit(in_lane("a"), in_lane("a"))

    await limited.store.repo.prioritize_jobs([second], 9)

    (claim,) = await limited.claim_all()
    assert claim.job_id == second != first


async def test_aging_lets_an_old_job_pass_a_new_one_of_higher_priority(limited: Limited) -> None:
    await limited.limit_topic(aging=timedelta(minutes=5))
    (old,) = await limited.submit(a_job(TOPIC, priority=0))
    await limited.store.time.age(old, submitted=timedelta(minutes=11))
    urgent, most_urgent = await limited.submit(a_job(TOPIC, priority=2), a_job(TOPIC, priority=3))

    claims = await limited.claim(3)

    assert [claim.job_id for claim in claims] == [most_urgent, old, urgent]


async def test_backlog_from_before_the_policy_enters_the_lanes(limited: Limited) -> None:
    await limited.submit(*(in_lane(lane) for lane in "aaabbb"))
    await limited.limit_topic(per_lane=1)

    running = await limited.claim_all()

    assert await lanes_of(limited, [claim.job_id for claim in running]) == {"a": 1, "b": 1}


async def test_no_more_jobs_of_a_lane_start_in_a_period_than_its_rate(limited: Limited) -> None:
    await limited.limit_topic(lane_rate=Rate(2, HOUR))
    await limited.submit(*(in_lane(lane) for lane in "aaaab"))

    running = await limited.claim_all()

    assert await lanes_of(limited, [claim.job_id for claim in running]) == {"a": 2, "b": 1}
    claims = await limited.claims(5)
    assert not claims.jobs
    assert claims.next_starts[TOPIC] > 60


async def test_lane_rate_of_a_longer_period_counts_from_the_change_on(limited: Limited) -> None:
    await limited.limit_topic(lane_rate=Rate(2, timedelta(minutes=1)))
    await limited.submit(*(in_lane("a") for _ in range(6)))
    assert len(await limited.claim_all()) == 2

    await limited.limit_topic(lane_rate=Rate(4, timedelta(minutes=10)))

    assert len(await limited.claim_all()) == 2, "the starts of the period before count"
    assert 0 < (await limited.claims(1)).next_starts[TOPIC] < 700


async def test_lane_rate_that_is_raised_is_in_force_at_once(limited: Limited) -> None:
    await limited.limit_topic(lane_rate=Rate(1, HOUR))
    await limited.submit(*(in_lane("a") for _ in range(4)))
    assert len(await limited.claim_all()) == 1

    await limited.limit_topic(lane_rate=Rate(3, HOUR))

    assert len(await limited.claim_all()) == 2
    await limited.limit_topic(turns=True)
    assert len(await limited.claim_all()) == 1


async def test_lane_has_a_limit_of_its_own(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    assert await limited.limits.set_lane(TOPIC, "a", 1, 3)
    await limited.submit(*(in_lane(lane) for lane in "aaaabb"))

    running = await limited.claim_all()

    assert await lanes_of(limited, [claim.job_id for claim in running]) == {"a": 3, "b": 1}
    assert not await limited.limits.set_lane("email", "a", 1, 3), "it has no lanes"


async def test_limit_of_lanes_that_is_lowered_stops_starts_and_no_run(limited: Limited) -> None:
    await limited.limit_topic(per_lane=3)
    await limited.submit(*(in_lane("a") for _ in range(8)))
    running = await limited.claim_all()
    assert len(running) == 3

    await limited.limit_topic(per_lane=2)

    await limited.complete(running[0])
    assert await limited.claim_all() == [], "two of them still run"
    await limited.complete(running[1])
    assert len(await limited.claim_all()) == 1
    await limited.limit_topic(per_lane=4)
    assert len(await limited.claim_all()) == 2
    assert await limited.agrees()


async def test_lanes_that_lose_their_limit_and_get_one_again(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(*(in_lane("a") for _ in range(9)))
    (first,) = await limited.claim_all()
    await limited.limit_topic(turns=True)
    others = await limited.claim(3)
    assert len(others) == 3

    await limited.limit_topic(per_lane=2)

    await limited.complete(first, *others[:1])
    assert await limited.claim_all() == []
    await limited.complete(*others[1:2])
    assert len(await limited.claim_all()) == 1
    assert await limited.agrees()


async def test_jobs_in_lanes_leave_them_with_the_policy(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(*(in_lane("a") for _ in range(1500)))
    await limited.claim_all()

    await limited.limits.retire(TOPIC)

    assert len(await limited.claim(1000)) == 1000
    assert await limited.limits.remove_retired() == [TOPIC]
    assert len(await limited.store.claim(count=1000, topics=[TOPIC])) == 499


async def test_job_that_another_session_has_locked_delays_no_other(
    limited: Limited, rival: Connection
) -> None:
    await limited.limit_topic(per_lane=2)
    locked, free = await limited.submit(in_lane("a"), in_lane("a"))
    await limited.submit(in_lane("b"))
    await rival.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)

    taken = await limited.claim_all()

    assert free in {claim.job_id for claim in taken}
    assert len(taken) == 2
    await rival.execute("ROLLBACK")
    assert [claim.job_id for claim in await limited.claim_all()] == [locked]


async def test_list_of_lanes_has_those_that_wait_the_longest_first(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    old, *_ = await limited.submit(in_lane("a"), in_lane("b"), in_lane("b"))
    await limited.claim_all()
    await limited.submit(in_lane("a"))
    assert old

    lanes = await limited.limits.list_lanes(TOPIC, limit=10)

    assert [(lane.lane, lane.waiting, lane.running) for lane in lanes] == [("b", 1, 1), ("a", 1, 1)]


async def test_topic_with_lanes_moves_to_a_pool(limited: Limited) -> None:
    """Work that was announced in the pool before is found in the next."""
    await limited.limit_topic(per_lane=1)
    await limited.submit(in_lane("a"))
    (running,) = await limited.claim_all()
    await limited.submit(in_lane("b"), in_lane("a"))

    await limited.limit_topic(per_lane=1, running=2, pool="gpu")

    (other,) = await limited.claim_all()
    assert (await limited.store.job(other.job_id)).lane == "b"
    await limited.complete(running, other)
    assert len(await limited.claim_all()) == 1
    assert [limits.in_force["pool"] for limits in await limited.limits.list_limits(limit=5)] == ["gpu"]
    assert await limited.connection.fetchval("SELECT array_agg(name) FROM pulse.pools") == ["gpu"]
    assert await limited.agrees()


async def test_lane_that_was_not_used_for_long_is_forgotten(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.limits.set_lane(TOPIC, "kept", 2, None)
    await limited.submit(in_lane("a"), in_lane("b"))
    of_a, _of_b = await limited.claim_all()
    await limited.complete(of_a)
    assert await limited.claim_all() == []
    assert await limited.limits.forget_lanes(100) == 0

    await limited.connection.execute("UPDATE pulse.lanes SET used_at = now() - interval '2 hours'")

    assert await limited.limits.forget_lanes(100) == 1
    await limited.submit(in_lane("a"))
    assert len(await limited.claim_all()) == 1
    assert await limited.agrees()


async def test_sweep_counts_lanes_anew_that_were_changed_by_hand(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(in_lane("a"), in_lane("a"))
    await limited.claim_all()
    await limited.connection.execute("UPDATE pulse.lanes SET held = 0")

    assert await limited.limits.sweep() == (0, 1)

    assert await limited.claim_all() == [], "one of them runs"
    assert await limited.agrees()
