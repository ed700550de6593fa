"""Limits while other sessions hold locks, a clock is set back, and topics have many lanes."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from pulse.topic_settings import Rate
from pulse_server.base.errors import LimitsLocked
from pulse_server.database.connections import Database
from pulse_server.dispatch.store import PostgresDispatchRepo
from tests.fakes.store import failure
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection, blocked

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


async def test_pool_that_another_session_has_locked_delays_no_other_topic(
    limited: Limited, rival: Connection
) -> None:
    for topic in ("free", "locked"):
        await limited.limit_topic(topic, running=1)
    (job_id, _) = await limited.submit(in_lane(None, "free"), in_lane(None, "locked"))
    await rival.execute("SELECT FROM pulse.pools WHERE name = 'locked' FOR UPDATE")

    claims = await limited.claims(5, "locked", "free")

    assert [job.id for job in claims.jobs] == [job_id]
    assert claims.next_starts["locked"] == 0, "it is to be claimed again soon"
    await rival.execute("ROLLBACK")
    assert len(await limited.claim(5, "locked", "free")) == 1


async def test_claim_waits_a_moment_for_a_locked_pool_and_is_to_be_repeated(
    limited: Limited, rival: Connection
) -> None:
    """A group of workers has one claim at a time: a claim that waits keeps its other topics waiting."""
    await limited.limit_topic(running=1)
    await limited.submit(in_lane(None))
    await rival.execute("SELECT FROM pulse.pools FOR UPDATE")

    claims = await limited.claims(5)

    assert (claims.jobs, claims.next_starts) == ([], {TOPIC: 0})
    await rival.execute("ROLLBACK")
    assert len(await limited.claim(5)) == 1


async def test_claim_that_meets_a_locked_lane_fails_after_a_moment(
    limited: Limited, rival: Connection
) -> None:
    """It holds the pool, and waits for a row that no other claim can have locked."""
    await limited.limit_topic(turns=True)
    await limited.submit(in_lane("a"))
    (claim,) = await limited.claim(5)
    await limited.complete(claim)
    await limited.submit(in_lane("a"))
    await rival.execute("SELECT FROM pulse.lanes FOR UPDATE")

    with pytest.raises(LimitsLocked):
        await limited.claims(5)

    await rival.execute("ROLLBACK")
    assert len(await limited.claim(5)) == 1


async def test_rate_has_room_again_within_a_period_after_the_clock_was_set_back(limited: Limited) -> None:
    await limited.limit_topic(rate=Rate(2, SECOND), lane_rate=Rate(1, SECOND))
    await limited.submit(*(in_lane("a") for _ in range(6)))
    assert len(await limited.claim_all()) == 1

    # As if all of this had been an hour later than now.
    await limited.connection.execute("UPDATE pulse.pools SET slice = slice + 20 * 3600")
    await limited.connection.execute(
        "UPDATE pulse.lanes SET slice = slice + 20 * 3600, next_at = next_at + interval '1 hour'"
    )

    await limited.limits.sweep()
    claims = await limited.claims(5)
    assert not claims.jobs, "the starts from before count for a period from now on"
    assert claims.next_starts[TOPIC] <= 1.16


async def test_canceled_retry_of_a_topic_that_has_no_lanes_any_more_leaves_no_notice(
    limited: Limited,
) -> None:
    await limited.limit_topic(per_lane=1)
    (job_id,) = await limited.submit(in_lane("a"))
    (claim,) = await limited.claim_all()
    await limited.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    await limited.limits.retire(TOPIC)
    assert await limited.limits.remove_retired() == [TOPIC]

    assert await limited.store.repo.cancel_jobs([job_id], "")

    assert not await limited.connection.fetchval("SELECT count(*) FROM pulse.limit_notices")


async def test_change_of_one_lane_writes_no_other(limited: Limited) -> None:
    """Of a hundred thousand lanes it would take longer than a statement may."""
    await limited.limit_topic(per_lane=1)
    await limited.submit(*(in_lane(f"lane-{number}") for number in range(20)))
    await limited.claim(10)
    versions = "SELECT sum(xmin::text::bigint) FROM pulse.lanes WHERE lane <> 'lane-3'"
    before = await limited.connection.fetchval(versions)

    assert await limited.limits.set_lane(TOPIC, "lane-3", 1, 2)

    assert await limited.connection.fetchval(versions) == before
    assert not await limited.connection.fetchval(
        "SELECT count(*) FROM pulse.limit_notices WHERE lanes <> '{lane-3}'"
    )
    assert await limited.agrees()


async def test_limit_of_lanes_that_changes_writes_no_lane(limited: Limited) -> None:
    await limited.limit_topic(per_lane=1)
    await limited.submit(*(in_lane(f"lane-{number}") for number in range(20)))
    await limited.claim(10)
    versions = "SELECT sum(xmin::text::bigint) FROM pulse.lanes"
    before = await limited.connection.fetchval(versions)

    await limited.limit_topic(per_lane=2)
    await limited.limit_topic(ordered=True)

    assert await limited.connection.fetchval(versions) == before
    assert await limited.agrees()


@pytest.mark.usefixtures("patience_of_a_busy_machine")
async def test_topic_that_is_resumed_while_it_becomes_plain_is_not_paused(
    limited: Limited, rival: Connection, shared_dsn: str
) -> None:
    await limited.limit_topic(running=1)
    database = Database(shared_dsn)
    switches = PostgresDispatchRepo(database)
    await switches.pause_topic(TOPIC, "", "")
    await limited.limits.retire(TOPIC)
    assert await rival.fetchval("SELECT pulse.unlimit_topic_v1($1)", TOPIC)

    resumed = await blocked(limited.connection, switches.resume_topic(TOPIC))
    await rival.execute("COMMIT")
    await resumed
    await database.close()

    assert not await limited.connection.fetch("SELECT * FROM pulse.barred_topics")


async def test_topic_that_is_paused_while_it_becomes_plain_is_paused(
    limited: Limited, rival: Connection, shared_dsn: str
) -> None:
    await limited.limit_topic(running=1)
    await limited.limits.retire(TOPIC)
    await rival.execute("UPDATE pulse.barred_topics SET paused = true WHERE topic = $1", TOPIC)

    connection = await asyncpg.connect(shared_dsn)
    removed = await blocked(
        limited.connection, connection.fetchval("SELECT pulse.unlimit_topic_v1($1)", TOPIC)
    )
    await rival.execute("COMMIT")

    assert await removed
    connection.terminate()
    (switch,) = await limited.connection.fetch("SELECT paused, limited FROM pulse.barred_topics")
    assert tuple(switch) == (True, False)
