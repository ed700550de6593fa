"""Lanes: limits for each, and turns between them. ADR-0064"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import cycle

import pytest

from pulse_server.domain.flow import Rate
from tests.fakes.store import a_job
from tests.postgres.governed import TOPIC, Governed, in_lane
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)


async def lanes_of(governed: Governed, job_ids: list[str]) -> Counter[str | None]:
    return Counter([(await governed.store.job(job_id)).lane for job_id in job_ids])


async def test_lane_without_a_policy_is_stored_and_changes_nothing(governed: Governed) -> None:
    (job_id,) = await governed.submit(in_lane("customer-1", "email"))

    (claim,) = await governed.store.claim(topics=["email"])
    assert (await governed.store.job(job_id)).lane == "customer-1"
    await governed.complete(claim)
    assert (await governed.store.job(job_id)).lane == "customer-1", "completed jobs keep it"


async def test_no_more_jobs_of_a_lane_run_than_its_limit(governed: Governed) -> None:
    await governed.govern(per_lane=2)
    await governed.submit(*(in_lane(lane) for lane in "aaaabbbbc"))

    running = await governed.claim_all()

    assert await lanes_of(governed, [claim.job_id for claim in running]) == {"a": 2, "b": 2, "c": 1}
    of_a = [claim for claim in running if (await governed.store.job(claim.job_id)).lane == "a"]
    await governed.complete(of_a[0])
    (more,) = await governed.claim_all()
    assert (await governed.store.job(more.job_id)).lane == "a"
    assert await governed.agrees()


async def test_jobs_without_a_lane_have_no_limit_of_a_lane(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.submit(*(in_lane(None) for _ in range(5)), in_lane("a"), in_lane("a"))

    assert len(await governed.claim_all()) == 6


async def test_lanes_take_turns(governed: Governed) -> None:
    """A lane with a thousand jobs does not delay the first job of another one."""
    await governed.govern(turns=True)
    await governed.submit(*(in_lane("heavy") for _ in range(1000)))
    (light,) = await governed.submit(in_lane("light"))

    first = await governed.claim(10)
    second = await governed.claim(10)

    assert light in {claim.job_id for claim in first + second}


@pytest.mark.parametrize("rooms", [[1], [2], [3], [5], [100], [1, 9, 2, 70]], ids=str)
async def test_lanes_start_jobs_by_their_weights_however_few_slots_a_claim_has(
    governed: Governed, rooms: list[int]
) -> None:
    await governed.govern(turns=True)
    await governed.flow.set_lane(TOPIC, "a", 10, None)
    await governed.flow.set_lane(TOPIC, "b", 2, None)
    await governed.submit(*(in_lane(lane) for lane in "abcd" for _ in range(500)))
    started = Counter[str | None]()
    slots = cycle(rooms)

    while started.total() < 560:
        claims = await governed.claims(next(slots))
        assert claims.jobs
        started.update(job.lane for job in claims.jobs)

    shares = {lane: round(14 * started[lane] / started.total(), 1) for lane in "abcd"}
    assert shares == pytest.approx({"a": 10, "b": 2, "c": 1, "d": 1}, abs=0.3)
    assert await governed.agrees()


async def test_rest_of_a_turn_is_taken_before_the_turns_of_others(governed: Governed) -> None:
    await governed.govern(turns=True)
    await governed.flow.set_lane(TOPIC, "a", 3, None)
    await governed.submit(*(in_lane(lane) for lane in "ab" for _ in range(10)))

    order = [job.lane for _ in range(8) for job in (await governed.claims(1)).jobs]

    assert "".join(filter(None, order)) in ("aaabaaab", "baaabaaa")


async def test_priority_decides_within_a_lane(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    _low, high = await governed.submit(in_lane("a", priority=1), in_lane("a", priority=5))
    (claim,) = await governed.claim_all()

    assert claim.job_id == high


async def test_job_that_got_another_priority_is_claimed_by_it(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    first, second = await governed.submit(in_lane("a"), in_lane("a"))

    await governed.store.repo.prioritize_jobs([second], 9)

    (claim,) = await governed.claim_all()
    assert claim.job_id == second != first


async def test_aging_lets_an_old_job_pass_a_new_one_of_higher_priority(governed: Governed) -> None:
    await governed.govern(aging=timedelta(minutes=5))
    (old,) = await governed.submit(a_job(TOPIC, priority=0))
    await governed.store.time.age(old, submitted=timedelta(minutes=11))
    urgent, most_urgent = await governed.submit(a_job(TOPIC, priority=2), a_job(TOPIC, priority=3))

    claims = await governed.claim(3)

    assert [claim.job_id for claim in claims] == [most_urgent, old, urgent]


async def test_backlog_from_before_the_policy_enters_the_lanes(governed: Governed) -> None:
    await governed.submit(*(in_lane(lane) for lane in "aaabbb"))
    await governed.govern(per_lane=1)

    running = await governed.claim_all()

    assert await lanes_of(governed, [claim.job_id for claim in running]) == {"a": 1, "b": 1}


async def test_no_more_jobs_of_a_lane_start_in_a_period_than_its_rate(governed: Governed) -> None:
    await governed.govern(lane_rate=Rate(2, HOUR))
    await governed.submit(*(in_lane(lane) for lane in "aaaab"))

    running = await governed.claim_all()

    assert await lanes_of(governed, [claim.job_id for claim in running]) == {"a": 2, "b": 1}
    claims = await governed.claims(5)
    assert not claims.jobs
    assert claims.next_starts[TOPIC] > 60


async def test_lane_rate_of_a_longer_period_counts_from_the_change_on(governed: Governed) -> None:
    await governed.govern(lane_rate=Rate(2, timedelta(milliseconds=200)))
    await governed.submit(*(in_lane("a") for _ in range(6)))
    assert len(await governed.claim_all()) == 2

    await governed.govern(lane_rate=Rate(4, timedelta(seconds=2)))

    assert len(await governed.claim_all()) == 2, "the starts of the period before count"
    assert 0 < (await governed.claims(1)).next_starts[TOPIC] < 3


async def test_lane_rate_that_is_raised_is_in_force_at_once(governed: Governed) -> None:
    await governed.govern(lane_rate=Rate(1, HOUR))
    await governed.submit(*(in_lane("a") for _ in range(4)))
    assert len(await governed.claim_all()) == 1

    await governed.govern(lane_rate=Rate(3, HOUR))

    assert len(await governed.claim_all()) == 2
    await governed.govern(turns=True)
    assert len(await governed.claim_all()) == 1


async def test_lane_has_a_limit_of_its_own(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    assert await governed.flow.set_lane(TOPIC, "a", 1, 3)
    await governed.submit(*(in_lane(lane) for lane in "aaaabb"))

    running = await governed.claim_all()

    assert await lanes_of(governed, [claim.job_id for claim in running]) == {"a": 3, "b": 1}
    assert not await governed.flow.set_lane("email", "a", 1, 3), "it has no lanes"


async def test_limit_of_lanes_that_is_lowered_stops_starts_and_no_run(governed: Governed) -> None:
    await governed.govern(per_lane=3)
    await governed.submit(*(in_lane("a") for _ in range(8)))
    running = await governed.claim_all()
    assert len(running) == 3

    await governed.govern(per_lane=2)

    await governed.complete(running[0])
    assert await governed.claim_all() == [], "two of them still run"
    await governed.complete(running[1])
    assert len(await governed.claim_all()) == 1
    await governed.govern(per_lane=4)
    assert len(await governed.claim_all()) == 2
    assert await governed.agrees()


async def test_lanes_that_lose_their_limit_and_get_one_again(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.submit(*(in_lane("a") for _ in range(9)))
    (first,) = await governed.claim_all()
    await governed.govern(turns=True)
    others = await governed.claim(3)
    assert len(others) == 3

    await governed.govern(per_lane=2)

    await governed.complete(first, *others[:1])
    assert await governed.claim_all() == []
    await governed.complete(*others[1:2])
    assert len(await governed.claim_all()) == 1
    assert await governed.agrees()


async def test_jobs_in_lanes_leave_them_with_the_policy(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.submit(*(in_lane("a") for _ in range(1500)))
    await governed.claim_all()

    await governed.flow.retire(TOPIC)

    assert len(await governed.claim(1000)) == 1000
    assert await governed.flow.remove_retired() == [TOPIC]
    assert len(await governed.store.claim(count=1000, topics=[TOPIC])) == 499


async def test_job_that_another_session_has_locked_delays_no_other(
    governed: Governed, rival: Connection
) -> None:
    await governed.govern(per_lane=2)
    locked, free = await governed.submit(in_lane("a"), in_lane("a"))
    await governed.submit(in_lane("b"))
    await rival.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)

    taken = await governed.claim_all()

    assert free in {claim.job_id for claim in taken}
    assert len(taken) == 2
    await rival.execute("ROLLBACK")
    assert [claim.job_id for claim in await governed.claim_all()] == [locked]


async def test_list_of_lanes_has_those_that_wait_the_longest_first(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    old, *_ = await governed.submit(in_lane("a"), in_lane("b"), in_lane("b"))
    await governed.claim_all()
    await governed.submit(in_lane("a"))
    assert old

    lanes = await governed.flow.list_lanes(TOPIC, limit=10)

    assert [(lane.lane, lane.waiting, lane.running) for lane in lanes] == [("b", 1, 1), ("a", 1, 1)]


async def test_topic_with_lanes_moves_to_a_pool(governed: Governed) -> None:
    """Work that was announced at the turnstile before is found at the next."""
    await governed.govern(per_lane=1)
    await governed.submit(in_lane("a"))
    (running,) = await governed.claim_all()
    await governed.submit(in_lane("b"), in_lane("a"))

    await governed.govern(per_lane=1, limit=2, pool="gpu")

    (other,) = await governed.claim_all()
    assert (await governed.store.job(other.job_id)).lane == "b"
    await governed.complete(running, other)
    assert len(await governed.claim_all()) == 1
    assert [limits.policy.pool for limits in await governed.flow.list_limits(limit=5)] == ["gpu"]
    assert await governed.connection.fetchval("SELECT array_agg(name) FROM pulse.turnstiles") == ["gpu"]
    assert await governed.agrees()


async def test_lane_that_was_not_used_for_long_is_forgotten(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.flow.set_lane(TOPIC, "kept", 2, None)
    await governed.submit(in_lane("a"), in_lane("b"))
    of_a, _of_b = await governed.claim_all()
    await governed.complete(of_a)
    assert await governed.claim_all() == []
    assert await governed.flow.forget_lanes(100) == 0

    await governed.connection.execute("UPDATE pulse.lanes SET used_at = now() - interval '2 hours'")

    assert await governed.flow.forget_lanes(100) == 1
    await governed.submit(in_lane("a"))
    assert len(await governed.claim_all()) == 1
    assert await governed.agrees()


async def test_sweep_counts_lanes_anew_that_were_changed_by_hand(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.submit(in_lane("a"), in_lane("a"))
    await governed.claim_all()
    await governed.connection.execute("UPDATE pulse.lanes SET held = 0")

    assert await governed.flow.sweep() == (0, 1)

    assert await governed.claim_all() == [], "one of them runs"
    assert await governed.agrees()
