"""Limits and rates of topics: how many jobs run at once, and how many start in a period. ADR-0064"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from pulse.topic_settings import Rate
from pulse_server.jobs.reports import SnoozeReport, Taker
from pulse_server.jobs.rules import Claim
from tests.fakes.store import LEASE, a_job, failure, room, token
from tests.postgres.limited import TOPIC, Limited

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


async def test_no_more_jobs_run_than_the_limit(limited: Limited) -> None:
    await limited.limit_topic(running=3)
    await limited.submit(*(a_job(TOPIC) for _ in range(10)))

    running = await limited.claim(10)

    assert len(running) == 3
    assert await limited.claim(10) == []
    await limited.complete(running[0])
    assert len(await limited.claim(10)) == 1
    assert await limited.agrees()


async def test_limit_keeps_the_order_of_priority_and_submission(limited: Limited) -> None:
    await limited.limit_topic(running=2)
    low, high, later = await limited.submit(
        a_job(TOPIC, priority=1), a_job(TOPIC, priority=9), a_job(TOPIC, priority=9)
    )

    assert [claim.job_id for claim in await limited.claim(5)] == [high, later]
    assert low not in (high, later)


async def _fail(limited: Limited, claim: Claim) -> None:
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])


async def _discard(limited: Limited, claim: Claim) -> None:
    await limited.store.repo.fail_jobs([failure(claim, discard=True)])


async def _snooze(limited: Limited, claim: Claim) -> None:
    await limited.store.repo.snooze_jobs([SnoozeReport(claim, HOUR, "later")])


async def _cancel(limited: Limited, claim: Claim) -> None:
    assert await limited.store.repo.cancel_jobs([claim.job_id], "")


async def _reap(limited: Limited, claim: Claim) -> None:
    await limited.store.repo.extend_leases([claim], LEASE)
    await limited.store.time.lapse_leases(claim.job_id)
    assert await limited.store.repo.reap_expired(10)


async def _complete_in_place(limited: Limited, claim: Claim) -> None:
    await limited.connection.execute("SELECT 1")
    await limited.complete(claim)


@pytest.mark.parametrize("end", [_fail, _discard, _snooze, _cancel, _reap, _complete_in_place])
async def test_whatever_ends_a_run_frees_its_place(
    limited: Limited, end: Callable[[Limited, Claim], Awaitable[None]]
) -> None:
    await limited.limit_topic(running=1)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    (claim,) = await limited.claim(5)

    await end(limited, claim)

    (other,) = await limited.claim(5)
    assert other.job_id != claim.job_id
    assert await limited.agrees()


async def test_released_job_frees_its_place_and_is_the_next(limited: Limited) -> None:
    await limited.limit_topic(running=1)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    (claim,) = await limited.claim(5)

    assert await limited.store.repo.release_jobs([claim])

    assert await limited.claim(5) == [claim._replace(run=2)]


async def test_plain_claims_and_hand_overs_leave_limited_topics_alone(limited: Limited) -> None:
    await limited.limit_topic(running=1)
    repo = limited.store.repo
    (handed,) = await repo.hand_over_jobs([a_job(TOPIC)], [Taker("A", False)], LEASE)

    assert not handed.is_taken  # type: ignore[union-attr]  # it was stored
    assert await repo.claim_batch([TOPIC], room("A", 5), LEASE) == []
    assert await repo.claim_batch([TOPIC, "email"], room("A", 5), LEASE) == []


async def test_jobs_that_ran_before_the_limit_are_counted(limited: Limited) -> None:
    await limited.submit(*(a_job(TOPIC) for _ in range(6)))
    running = await limited.store.claim(count=4, topics=[TOPIC])

    await limited.limit_topic(running=3)

    assert await limited.claim(5) == []
    await limited.complete(*running[:2])
    assert len(await limited.claim(5)) == 1
    assert await limited.agrees()


async def test_limit_that_is_lowered_stops_starts_and_no_run(limited: Limited) -> None:
    await limited.limit_topic(running=4)
    await limited.submit(*(a_job(TOPIC) for _ in range(9)))
    running = await limited.claim(9)

    await limited.limit_topic(running=2)

    await limited.complete(*running[:2])
    assert await limited.claim(9) == []
    await limited.complete(running[2])
    assert len(await limited.claim(9)) == 1
    await limited.limit_topic(running=5)
    assert len(await limited.claim(9)) == 3


async def test_no_more_jobs_start_in_a_period_than_the_rate(limited: Limited) -> None:
    await limited.limit_topic(rate=Rate(5, HOUR))
    await limited.submit(*(a_job(TOPIC) for _ in range(9)))

    first = await limited.claims(3)
    await limited.complete(*map(token, first.jobs))
    second = await limited.claims(9)
    third = await limited.claims(9)

    assert [len(claims.jobs) for claims in (first, second, third)] == [3, 2, 0]
    assert first.next_starts == {}
    # A slice is a twentieth of the period, and the one under way counts as a whole.
    assert timedelta(minutes=50) < timedelta(seconds=third.next_starts[TOPIC]) <= timedelta(minutes=64)


@pytest.mark.parametrize("period", [timedelta(milliseconds=100), SECOND, timedelta(minutes=1), HOUR], ids=str)
async def test_start_counts_until_a_handler_that_began_after_it_is_older_than_the_period(
    limited: Limited, period: timedelta
) -> None:
    """A service that counts handlers sees no more than the rate if they begin within the margin."""
    margin = min(period / 10, SECOND)
    counted = period + margin
    moments = [NOON + counted / 20 * part / 7 for part in range(21)]
    instant = timedelta(microseconds=10)

    async def counts(start: datetime, moment: datetime) -> bool:
        return bool(
            await limited.connection.fetchval(
                """
                SELECT pulse.slices_sum_v1(pulse.slices_at_v1(
                    pulse.slices_with_v1(pulse.slices_at_v1('{}', 0, began.slice), 1), began.slice,
                    pulse.slice_of_v1($2, $3, began.slice)))
                FROM (SELECT pulse.slice_of_v1($1, $3, 0) AS slice) AS began
                """,
                *(start, moment, period),
            )
        )

    for start in moments:
        assert await counts(start, start + margin + period - instant)
        assert not await counts(start, start + 1.05 * counted + instant)


async def test_rate_counts_what_started_before_it_was_changed(limited: Limited) -> None:
    await limited.limit_topic(rate=Rate(5, HOUR))
    await limited.submit(*(a_job(TOPIC) for _ in range(9)))
    await limited.claim(4)

    await limited.limit_topic(rate=Rate(5, timedelta(minutes=1)))

    assert len(await limited.claim(9)) == 1


async def test_held_topic_starts_nothing_until_the_hold_ends(limited: Limited) -> None:
    await limited.limit_topic(running=5)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))

    assert await limited.limits.hold(TOPIC, HOUR, by_operator=True)
    assert await limited.limits.hold(TOPIC, timedelta(seconds=1), by_operator=True), "the longest counts"
    claims = await limited.claims(5)

    assert not claims.jobs
    assert timedelta(minutes=59) < timedelta(seconds=claims.next_starts[TOPIC]) <= HOUR
    assert await limited.limits.hold(TOPIC, timedelta(0), by_operator=True)
    assert len(await limited.claim(5)) == 2


async def test_topic_without_a_policy_cannot_be_held(limited: Limited) -> None:
    assert not await limited.limits.hold("email", HOUR, by_operator=True)


async def test_topics_of_a_pool_share_one_limit(limited: Limited) -> None:
    await limited.limit_topic("train", running=3, pool="gpu")
    await limited.limit_topic("render", running=3, pool="gpu")
    await limited.submit(*(a_job("train") for _ in range(4)), *(a_job("render") for _ in range(4)))

    trained = await limited.claim(2, "train")
    rendered = await limited.claim(5, "render", "train")

    assert (len(trained), len(rendered)) == (2, 1)
    await limited.complete(*trained)
    assert len(await limited.claim(5, "render", "train")) == 2
    assert await limited.agrees()


async def test_paused_limited_topic_starts_nothing_and_stays_limited(limited: Limited) -> None:
    await limited.limit_topic(running=5)
    await limited.submit(a_job(TOPIC))
    await limited.connection.execute("UPDATE pulse.barred_topics SET paused = true WHERE topic = $1", TOPIC)
    assert await limited.claim(5) == []


async def test_retired_policy_limits_nothing_and_its_topic_becomes_plain(limited: Limited) -> None:
    await limited.limit_topic(running=1)
    await limited.submit(*(a_job(TOPIC) for _ in range(4)))
    running = await limited.claim(5)
    await limited.limits.retire(TOPIC)

    assert len(await limited.claim(2)) == 2
    assert await limited.limits.remove_retired() == [TOPIC]
    assert len(await limited.store.claim(count=5, topics=[TOPIC])) == 1
    await limited.complete(*running)
    assert await limited.agrees()
    assert await limited.limits.list_limits(limit=10) == []


async def test_list_of_limits_has_the_policy_and_where_it_stands(limited: Limited) -> None:
    await limited.limit_topic(running=4, rate=Rate(2, HOUR))
    await limited.submit(a_job(TOPIC), a_job(TOPIC), a_job(TOPIC))
    await limited.claim(5)

    (limits,) = await limited.limits.list_limits(limit=10)

    assert (limits.topic, limits.running, limits.in_force["running"]) == (TOPIC, 2, 4)
    assert limits.in_force["rate"] == Rate(2, HOUR)
    assert limits.next_start_at is not None
    assert limits.started == 2


async def test_starts_that_no_longer_count_are_not_listed(limited: Limited) -> None:
    await limited.limit_topic(rate=Rate(2, HOUR))
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    await limited.claim(5)
    # A quarter of an hour later, and with a start from an hour before.
    await limited.connection.execute("UPDATE pulse.pools SET slice = slice - 5, slices[1] = 1")

    (limits,) = await limited.limits.list_limits(limit=10)

    assert limits.started == 2
    assert limits.next_start_at is not None
    assert limits.next_start_at > datetime.now(UTC)


async def test_sweep_counts_anew_what_was_changed_by_hand(limited: Limited) -> None:
    await limited.limit_topic(running=2)
    await limited.submit(*(a_job(TOPIC) for _ in range(3)))
    claims = await limited.claim(5)
    await limited.connection.execute(
        "UPDATE pulse.jobs SET status = 'RETRYING', locked_by = NULL, lease_until = NULL WHERE id = $1",
        claims[0].job_id,
    )
    assert await limited.claim(5) == [], "no statement of ours has freed the place"

    assert await limited.limits.sweep() == (1, 0)

    assert len(await limited.claim(5)) == 1
    assert await limited.agrees()
