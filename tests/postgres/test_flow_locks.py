"""Limits while other sessions hold locks, a clock is set back, and topics have many lanes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse_server.domain.errors import Unavailable
from pulse_server.domain.flow import Rate
from tests.fakes.store import failure
from tests.postgres.governed import TOPIC, Governed, in_lane
from tests.postgres.sessions import Connection

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


async def test_turnstile_that_another_session_has_locked_delays_no_other_topic(
    governed: Governed, rival: Connection
) -> None:
    for topic in ("free", "locked"):
        await governed.govern(topic, limit=1)
    (job_id, _) = await governed.submit(in_lane(None, "free"), in_lane(None, "locked"))
    await rival.execute("SELECT FROM pulse.turnstiles WHERE name = 'locked' FOR UPDATE")

    claims = await governed.claims(5, "locked", "free")

    assert [job.id for job in claims.jobs] == [job_id]
    assert claims.next_starts["locked"] == 0, "it is to be claimed again soon"
    await rival.execute("ROLLBACK")
    assert len(await governed.claim(5, "locked", "free")) == 1


async def test_limit_is_set_while_an_autovacuum_has_the_table(governed: Governed, rival: Connection) -> None:
    """A VACUUM by hand is not canceled for it, as an autovacuum is: its lock is released here instead."""
    await rival.execute("LOCK TABLE pulse.jobs IN SHARE UPDATE EXCLUSIVE MODE")
    with pytest.raises(Unavailable, match=r"Another session of the database has pulse\.jobs"):
        await governed.govern(limit=1)
    await rival.execute("ROLLBACK")
    await governed.govern(limit=1)
    await governed.submit(in_lane(None), in_lane(None))
    assert len(await governed.claim_all()) == 1


async def test_rate_has_room_again_within_a_period_after_the_clock_was_set_back(governed: Governed) -> None:
    await governed.govern(rate=Rate(2, SECOND), lane_rate=Rate(1, SECOND))
    await governed.submit(*(in_lane("a") for _ in range(6)))
    assert len(await governed.claim_all()) == 1

    # As if all of this had been an hour later than now.
    await governed.connection.execute("UPDATE pulse.turnstiles SET slice = slice + 20 * 3600")
    await governed.connection.execute(
        "UPDATE pulse.lanes SET slice = slice + 20 * 3600, next_at = next_at + interval '1 hour'"
    )

    await governed.flow.sweep()
    claims = await governed.claims(5)
    assert not claims.jobs, "the starts from before count for a period from now on"
    assert claims.next_starts[TOPIC] <= 1.1


async def test_canceled_retry_of_a_topic_that_has_no_lanes_any_more_leaves_no_notice(
    governed: Governed,
) -> None:
    await governed.govern(per_lane=1)
    (job_id,) = await governed.submit(in_lane("a"))
    (claim,) = await governed.claim_all()
    await governed.store.repo.fail_jobs([failure(claim, retry_after=HOUR)])
    await governed.flow.retire(TOPIC)
    assert await governed.flow.remove_retired() == [TOPIC]

    assert await governed.store.repo.cancel_jobs([job_id], "")

    assert not await governed.connection.fetchval("SELECT count(*) FROM pulse.flow_notices")


async def test_change_of_one_lane_writes_no_other(governed: Governed) -> None:
    """Of a hundred thousand lanes it would take longer than a statement may."""
    await governed.govern(per_lane=1)
    await governed.submit(*(in_lane(f"lane-{number}") for number in range(20)))
    await governed.claim(10)
    versions = "SELECT sum(xmin::text::bigint) FROM pulse.lanes WHERE lane <> 'lane-3'"
    before = await governed.connection.fetchval(versions)

    assert await governed.flow.set_lane(TOPIC, "lane-3", 1, 2)

    assert await governed.connection.fetchval(versions) == before
    assert not await governed.connection.fetchval(
        "SELECT count(*) FROM pulse.flow_notices WHERE lane <> 'lane-3'"
    )
    assert await governed.agrees()


async def test_limit_of_lanes_that_changes_writes_no_lane(governed: Governed) -> None:
    await governed.govern(per_lane=1)
    await governed.submit(*(in_lane(f"lane-{number}") for number in range(20)))
    await governed.claim(10)
    versions = "SELECT sum(xmin::text::bigint) FROM pulse.lanes"
    before = await governed.connection.fetchval(versions)

    await governed.govern(per_lane=2)
    await governed.govern(ordered=True)

    assert await governed.connection.fetchval(versions) == before
    assert await governed.agrees()
