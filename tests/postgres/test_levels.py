"""Claims and hand-overs that look at some levels only: what they find, and what they do not walk. ADR-0055"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Level
from tests.fakes.store import LEASE, Store, a_job, room
from tests.postgres.query_plans import pages_read
from tests.postgres.sessions import Connection

ENDED = 2000
_SUBMITTED_AN_HOUR_AGO = """
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
SELECT gen_random_uuid(), 'email', '', 0, 5, moment, moment, true, 'PENDING'
FROM generate_series(1, $1) AS n, (SELECT now() - interval '1 h') AS an_hour_ago (moment)
"""


async def age(connection: Connection, job_id: str, seconds: float) -> None:
    await connection.execute(
        "UPDATE pulse.jobs SET submitted_at = submitted_at - $2::interval WHERE id = $1",
        job_id,
        timedelta(seconds=seconds),
    )


async def claim(store: Store, topics: Sequence[str], levels: list[Level], count: int = 10) -> list[str]:
    jobs = await store.repo.claim_batch(topics, room("A", count), LEASE, levels)
    return [job.id for job in jobs]


@pytest.mark.parametrize("topics", [["email"], ["email", "sms"]], ids=["one topic", "two topics"])
async def test_claim_takes_the_jobs_of_its_levels_in_their_order(
    store: Store, connection: Connection, topics: list[str]
) -> None:
    low, high, old, other = a_job(), a_job(priority=5), a_job(), a_job(priority=2)
    await store.submit(low, high, old, other)
    await age(connection, old.id, 60)
    levels = [Level("email", 5, 30.0), Level("email", 0, 30.0)]

    assert await claim(store, topics, levels) == [high.id, low.id]
    assert await claim(store, topics, [Level("email", 0, 90.0)]) == [old.id]
    assert await claim(store, topics, [Level("sms", 2, 90.0)] if len(topics) > 1 else []) == []
    assert [job.id for job in await store.repo.claim_batch(topics, room("A", 9), LEASE)] == [other.id]


async def test_levels_of_several_topics_are_merged_by_priority_then_age(store: Store) -> None:
    jobs = [a_job(topic, priority=priority) for topic, priority in [("a", 0), ("b", 3), ("a", 3), ("b", 0)]]
    await store.submit(*jobs)
    levels = [Level(topic, priority, 60.0) for priority in (3, 0) for topic in ("a", "b")]

    assert await claim(store, ["a", "b"], levels, 3) == [jobs[index].id for index in (1, 2, 0)]
    assert await claim(store, ["a", "b"], levels, 3) == [jobs[3].id]


@pytest.mark.parametrize("topics", [["email"], ["email", "sms"]], ids=["one topic", "two topics"])
async def test_last_job_of_a_claim_carries_its_age(
    store: Store, connection: Connection, topics: list[str]
) -> None:
    jobs = [a_job() for _ in range(3)]
    await store.submit(*jobs)
    await age(connection, jobs[1].id, 60)

    (oldest,) = await store.repo.claim_batch(topics, room("A", 1), LEASE)
    first, last = await store.repo.claim_batch(topics, room("A", 2), LEASE, [Level("email", 0, 30.0)])

    assert oldest.age_seconds == pytest.approx(60, abs=25)
    assert first.age_seconds is None
    assert last.age_seconds == pytest.approx(0, abs=25)


@pytest.mark.parametrize("topics", [["email"], ["email", "sms"]], ids=["one topic", "two topics"])
async def test_paused_topic_is_not_claimed_from_by_its_levels(
    store: Store, connection: Connection, topics: list[str]
) -> None:
    await store.submit(a_job())
    await connection.execute("INSERT INTO pulse.barred_topics (topic) VALUES ('email')")

    assert await claim(store, topics, [Level("email", 0, 60.0)]) == []


async def test_two_claims_of_a_level_at_the_same_time_are_disjoint(
    store: Store, connection: Connection
) -> None:
    jobs = [a_job() for _ in range(4)]
    await store.submit(*jobs)
    async with connection.transaction():
        await connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", jobs[0].id)
        assert await claim(store, ["email"], [Level("email", 0, 60.0)], 2) == [jobs[1].id, jobs[2].id]


@pytest.mark.parametrize(
    ("levels", "is_taken"),
    [
        (None, False),
        ([], True),
        ([Level("email", 0, 30.0)], True),
        ([Level("email", 0, 90.0)], False),
        ([Level("email", 1, 90.0), Level("sms", 0, 90.0)], True),
    ],
    ids=["anywhere", "nowhere", "newer ones", "older ones", "other levels"],
)
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
async def test_job_is_handed_over_unless_another_waits_at_the_levels(
    store: Store, connection: Connection, levels: list[Level] | None, is_taken: bool, others: int
) -> None:
    waiting, new = a_job(), a_job()
    await store.submit(waiting)
    await age(connection, waiting.id, 60)

    jobs = [new, *(a_job("another") for _ in range(others))]
    answers = await store.repo.hand_over_jobs(jobs, [Taker("A", True)] * len(jobs), LEASE, levels)

    assert answers[0] == Submitted(new.id, False, is_taken=is_taken)


async def test_promotion_returns_levels_with_the_age_of_the_oldest_job(
    store: Store, connection: Connection
) -> None:
    jobs = [a_job(delay=timedelta(hours=1)), a_job(priority=3, delay=timedelta(hours=1))]
    await store.submit(*jobs)
    await connection.execute(
        "UPDATE pulse.jobs SET submitted_at = now() - interval '1 h', next_run_at = now() - interval '1 s'"
    )

    promotion = await store.repo.promote_due(10)

    assert promotion.promoted == 2
    assert {level[:2] for level in promotion.levels} == {("email", 0), ("email", 3)}
    assert all(3600 <= level.age_seconds < 3660 for level in promotion.levels)


async def test_claim_of_a_level_does_not_walk_what_a_held_transaction_keeps(
    store: Store, connection: Connection, second_connection: Connection
) -> None:
    """Vacuum cannot remove the entries of jobs that have ended since the snapshot."""
    async with second_connection.transaction(isolation="repeatable_read"):
        await second_connection.fetchval("SELECT count(*) FROM pulse.jobs")
        await connection.execute(_SUBMITTED_AN_HOUR_AGO, ENDED)
        await store.repo.complete_jobs(await store.claim(count=ENDED))
        await store.submit(a_job())

        slots = "20, array_fill(1, ARRAY[20]), '{A}', '{t}', '30 s', 1000, '{}', 0"
        full = await pages_read(connection, "claim_batch", f"'{{email}}', {slots}, NULL, NULL")
        level = await pages_read(connection, "claim_batch", f"'{{email}}', {slots}, '{{0}}', '{{60}}'")

    assert level < 60
    assert full > 3 * level
