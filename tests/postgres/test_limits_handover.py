"""Jobs of limited topics that are claimed in the statement that stores them. ADR-0064"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pulse.topic_settings import Rate
from pulse_server.database.connections import Database
from pulse_server.dispatch.rules import LimitedClaims
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo
from tests.fakes.store import LEASE, room, token
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.limits_audit import begin_audit, end_audit
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)
POLICIES: list[dict[str, Any]] = [
    {"running": 1},
    {"rate": Rate(1, HOUR)},
    {"per_lane": 1},
    {"lane_rate": Rate(1, HOUR)},
    {"turns": True},
    {"ordered": True},
    {"turns": True, "aging": HOUR},
    {"running": 1, "pool": "gpu"},
    {"running": 5, "per_lane": 1, "rate": Rate(9, HOUR), "lane_rate": Rate(3, HOUR)},
]
SUBMITTERS, SUBMITS = 50, 4


async def hand_over(limited: Limited, *jobs: NewJob) -> tuple[list[Any], LimitedClaims]:
    """Submit the jobs, with a slot for each."""
    answers, claims = await limited.limits.hand_over_limited(TOPIC, jobs, room("A", len(jobs)), LEASE)
    return list(answers), claims


async def handed_over(limited: Limited, *jobs: NewJob) -> list[bool]:
    answers, claims = await hand_over(limited, *jobs)
    taken = [answer.is_taken for answer in answers]
    assert {job.id for job in claims.jobs} >= {job.id for job, has in zip(jobs, taken, strict=True) if has}
    return taken


@pytest.mark.parametrize("entries", POLICIES, ids=str)
@pytest.mark.parametrize("lane", [None, "shop-7"])
async def test_job_of_an_idle_topic_is_stored_and_leased_in_one_statement(
    limited: Limited, entries: dict[str, Any], lane: str | None
) -> None:
    await limited.limit_topic(**entries)
    job = in_lane(lane, payload=b"p", priority=3, metadata={"a": "b"}, max_attempts=1)

    answers, claims = await hand_over(limited, job)

    assert answers == [Submitted(job.id, False, is_taken=True)]
    (taken,) = claims.jobs
    assert taken[:10] == (job.id, TOPIC, b"p", 1, 1, 3, 1, {"a": "b"}, None, "A")
    assert taken.lane == lane
    assert await limited.agrees()
    await limited.complete(token(taken))
    assert await limited.agrees()


async def test_claims_after_a_handover_count_it(limited: Limited) -> None:
    await limited.limit_topic(running=2, per_lane=1)
    assert await handed_over(limited, in_lane("a"), in_lane("a"), in_lane("b")) == [True, False, True]
    await limited.submit(in_lane("c"))
    assert not await limited.claim_all()


async def test_job_that_waits_is_taken_before_the_new_one(limited: Limited) -> None:
    await limited.limit_topic(running=5)
    (waiting,) = await limited.submit(in_lane(None))
    new = in_lane(None)

    answers, claims = await hand_over(limited, new)

    assert answers == [Submitted(new.id, False)]
    assert [job.id for job in claims.jobs] == [waiting]


async def test_job_of_a_full_topic_waits_for_the_end_of_a_run(limited: Limited) -> None:
    await limited.limit_topic(running=1)
    first, second = in_lane(None), in_lane(None)
    _, claims = await hand_over(limited, first)

    answers, later = await hand_over(limited, second)

    assert (answers, list(later.jobs)) == ([Submitted(second.id, False)], [])
    assert later.next_starts == {TOPIC: float("inf")}
    await limited.complete(*map(token, claims.jobs))
    assert await limited.claim_all() == [Claim(second.id, "A", 1, 1)]


async def test_handovers_spend_the_rate(limited: Limited) -> None:
    await limited.limit_topic(rate=Rate(2, HOUR))
    assert [await handed_over(limited, in_lane(None)) for _ in range(3)] == [[True], [True], [False]]
    _, claims = await hand_over(limited, in_lane(None))
    assert 0 < claims.next_starts[TOPIC] <= 64 * 60, "a twentieth more than the period and a second"


async def test_handovers_spend_the_rate_of_a_lane(limited: Limited) -> None:
    await limited.limit_topic(lane_rate=Rate(1, HOUR))
    assert await handed_over(limited, in_lane("a")) == [True]
    assert await handed_over(limited, in_lane("a")) == [False]
    assert await handed_over(limited, in_lane("b")) == [True]


async def test_order_of_a_lane_is_kept_while_its_first_job_waits_to_be_retried(limited: Limited) -> None:
    await limited.limit_topic(ordered=True)
    _, claims = await hand_over(limited, in_lane("a"))
    await limited.store.repo.release_jobs(list(map(token, claims.jobs)))
    second = in_lane("a")
    _, claims = await hand_over(limited, second)
    assert second.id not in {job.id for job in claims.jobs}


async def test_locked_pool_delays_no_submit(limited: Limited, rival: Connection) -> None:
    """The session that has it may wait for the table, as limit_topic does: a wait would be a deadlock."""
    await limited.limit_topic(running=1)
    await rival.execute("SELECT FROM pulse.pools FOR UPDATE")
    job = in_lane(None)

    answers, claims = await hand_over(limited, job)

    assert (answers, list(claims.jobs)) == ([Submitted(job.id, False)], [])
    assert claims.next_starts == {TOPIC: 0}, "it is to be claimed soon"
    await rival.execute("ROLLBACK")
    assert await limited.claim_all() == [Claim(job.id, "A", 1, 1)]


@pytest.mark.parametrize("what", ["topic", "everything", "hold"])
async def test_job_of_a_paused_or_held_topic_is_not_handed_over(
    shared_dsn: str, limited: Limited, what: str
) -> None:
    await limited.limit_topic(running=5)
    database = Database(shared_dsn)
    switches = PostgresDispatchRepo(database)
    try:
        if what == "topic":
            await switches.pause_topic(TOPIC, "")
        elif what == "everything":
            await switches.pause_everything("")
        else:
            await limited.limits.hold(TOPIC, HOUR, by_operator=True)
        assert await handed_over(limited, in_lane(None)) == [False]
    finally:
        await database.close()
    assert await limited.agrees()


async def test_job_that_starts_later_is_not_handed_over(limited: Limited) -> None:
    await limited.limit_topic(running=5, per_lane=1)
    assert await handed_over(limited, in_lane("a", delay=HOUR), in_lane("b")) == [False, True]


async def test_repeated_submit_is_answered_and_leases_nothing(limited: Limited) -> None:
    await limited.limit_topic(running=5)
    job = in_lane(None, idempotency_key="k")
    _, claims = await hand_over(limited, job)
    assert await hand_over(limited, job) == ([Submitted(job.id, True)], LimitedClaims([], {}))

    await limited.complete(*map(token, claims.jobs))
    again = await hand_over(limited, job)
    assert again == ([Submitted(job.id, True)], LimitedClaims([], {})), "of a completed job too"
    assert await limited.agrees()


async def test_job_of_a_topic_whose_limits_have_ended_is_stored(limited: Limited) -> None:
    job = in_lane("a")
    assert await hand_over(limited, job) == ([Submitted(job.id, False)], LimitedClaims([], {}))


async def test_no_limit_is_exceeded_by_many_submitters_at_two_servers(
    shared_dsn: str, limited: Limited
) -> None:
    """By an audit of its own, in the order of the commits."""
    await limited.limit_topic(running=1)
    await begin_audit(limited.connection)
    databases = [Database(shared_dsn), Database(shared_dsn)]
    limits = [PostgresLimitRepo(database) for database in databases]
    repos = [PostgresJobRepo(database) for database in databases]
    handed = 0

    async def submit(number: int) -> None:
        nonlocal handed
        for _ in range(SUBMITS):
            handover = await limits[number % 2].hand_over_limited(TOPIC, [in_lane(None)], room("A", 1), LEASE)
            jobs = handover.claims.jobs
            handed += len(jobs)
            if jobs:
                await repos[number % 2].complete_jobs([token(job) for job in jobs])

    try:
        await asyncio.gather(*map(submit, range(SUBMITTERS)))
        while claims := await limited.claim_all():
            await limited.complete(*claims)
    finally:
        for database in databases:
            await database.close()
    runs = await end_audit(limited.connection)
    assert handed > 0
    assert runs.most_of_topic(TOPIC) == 1
    assert len(runs.starts[TOPIC,]) == SUBMITTERS * SUBMITS
    assert await limited.agrees()
