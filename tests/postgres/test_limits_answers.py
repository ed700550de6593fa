"""What a limited claim returns beside its jobs: dispatch claims again by it. ADR-0064"""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from pulse.topic_settings import Rate
from pulse_server.jobs.rules import ProgressReport
from tests.fakes.store import a_job, token
from tests.postgres.limited import TOPIC, Limited, in_lane

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("topics", [("b", "a"), ("a", "b")])
async def test_slots_go_to_the_topics_in_the_order_of_the_request(
    limited: Limited, topics: tuple[str, ...]
) -> None:
    """Not in that of their names: with few slots, the last ones would never get any."""
    for topic in topics:
        await limited.limit_topic(topic, running=5)
        await limited.submit(a_job(topic))

    claims = await limited.claims(1, *topics)

    assert [job.topic for job in claims.jobs] == [topics[0]]


async def test_claim_that_takes_the_last_place_returns_that_only_the_end_of_a_run_helps(
    limited: Limited,
) -> None:
    await limited.limit_topic(running=2)
    await limited.submit(*(a_job(TOPIC) for _ in range(5)))

    first = await limited.claims(1)
    second = await limited.claims(1)
    third = await limited.claims(1)

    assert first.next_starts == {}
    assert second.next_starts == third.next_starts == {TOPIC: math.inf}
    await limited.complete(token(first.jobs[0]))
    assert (await limited.claims(0)).next_starts == {}


async def test_lane_whose_time_has_come_does_not_call_for_a_claim_while_all_places_are_taken(
    limited: Limited,
) -> None:
    await limited.limit_topic(running=1, lane_rate=Rate(1, timedelta(milliseconds=100)))
    await limited.submit(in_lane("a"), in_lane("a"))

    claims = await limited.claims(5)

    assert len(claims.jobs) == 1
    assert claims.next_starts == {TOPIC: math.inf}


async def test_claim_that_spends_the_rate_returns_when_the_next_job_may_start(limited: Limited) -> None:
    """A timer is set by it: the jobs that it took may run for long, and nothing else wakes dispatch."""
    await limited.limit_topic(rate=Rate(2, HOUR))
    await limited.submit(*(a_job(TOPIC) for _ in range(5)))

    claims = await limited.claims(5)

    assert len(claims.jobs) == 2
    assert timedelta(minutes=50) < timedelta(seconds=claims.next_starts[TOPIC]) <= timedelta(minutes=64)


@pytest.mark.parametrize("limit", [None, 1])
async def test_large_backlog_enters_its_lanes_though_nothing_starts_or_ends(
    limited: Limited, limit: int | None
) -> None:
    """A lane whose jobs are behind those of another one must not wait until these are done."""
    await limited.submit(*(in_lane("heavy") for _ in range(2000)))
    (light,) = await limited.submit(in_lane("light"))
    await limited.limit_topic(running=limit, per_lane=1)

    answers = [await limited.claims(5) for _ in range(4)]

    again = [0 < claims.next_starts.get(TOPIC, 0) <= 0.02 for claims in answers]
    assert again == [True, True, False, False]
    started = [job.id for claims in answers for job in claims.jobs]
    assert (light in started) is (limit is None)
    lanes = {state.lane: state.waiting for state in await limited.limits.list_lanes(TOPIC, limit=5)}
    assert (lanes["heavy"], lanes["light"]) == (1000, 0 if limit is None else 1)


async def test_job_of_a_limited_topic_has_the_progress_of_its_last_attempt(limited: Limited) -> None:
    await limited.limit_topic(running=2)
    await limited.submit(in_lane("acme"), a_job(TOPIC))
    first, second = await limited.claim(2)
    report = ProgressReport(0.5, "half", "50", 1)
    await limited.store.repo.release_jobs([first, second], progress={first: report})

    jobs = {job.id: job.progress for job in (await limited.claims(2)).jobs}

    progress = jobs[first.job_id]
    assert progress is not None
    assert progress[:4] == (0.5, "half", "50", 1)
    assert jobs[second.job_id] is None


async def test_claim_that_leaves_notices_behind_calls_for_another_one(limited: Limited) -> None:
    """The end of the only run is among them: no other event would lead to a claim."""
    await limited.limit_topic(running=1)
    await limited.submit(a_job(TOPIC), a_job(TOPIC))
    await limited.complete(*(await limited.claim(1)))
    await limited.connection.execute(
        "WITH last AS (DELETE FROM pulse.limit_notices RETURNING pool, topic, ended) "
        "INSERT INTO pulse.limit_notices (pool, topic, ended) "
        "SELECT $1, $1, 0 FROM generate_series(1, 10500) UNION ALL SELECT * FROM last",
        TOPIC,
    )

    first = await limited.claims(1)

    assert first.jobs == []
    assert first.next_starts[TOPIC] < 1
    for _ in range(10):
        if claimed := await limited.claim(1):
            break
    assert claimed


async def test_lanes_of_a_row_that_was_not_used_up_keep_their_place_in_the_line(limited: Limited) -> None:
    """Many lanes stand in the line in one row. A claim with fewer slots takes the first of them."""
    await limited.limit_topic(per_lane=1)
    names = [f"k{number:03}" for number in range(150)]
    await limited.submit(*(in_lane(name) for name in names))

    claims = [claim for _ in range(50) for claim in await limited.claim(3)]
    lanes = [(await limited.store.job(claim.job_id)).lane for claim in claims]

    assert lanes == names
    assert await limited.agrees()
