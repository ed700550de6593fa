"""The depth of topics: sampled once a minute by one server, and read with the statistics."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.views.statistics import ALL_TOPICS, Depth, Minutes
from tests.postgres.glance import Glance
from tests.postgres.query_plans import explain
from tests.postgres.sessions import Connection

MINUTE = timedelta(minutes=1)
WAITING = """
    INSERT INTO pulse.jobs
        (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
    SELECT gen_random_uuid(), $1, '', 0, 5, now(), now() - $3::interval, true, 'PENDING'
    FROM generate_series(1, $2)
"""


async def now(minutes: Minutes, topic: str) -> Depth | None:
    (minute,) = await minutes.topic_minutes(topic, 1)
    return minute.depth


async def test_depth_is_sampled_by_topic_and_for_all(glance: Glance, connection: Connection) -> None:
    await glance.clear()
    await connection.execute(WAITING, "mail", 3, 60 * MINUTE)
    await connection.execute(WAITING, "sms", 2, MINUTE)
    await glance.minutes.record_depths(10)

    mail, everything = await now(glance.minutes, "mail"), await now(glance.minutes, ALL_TOPICS)
    assert mail is not None
    assert everything is not None
    assert (mail.ready, mail.running, everything.ready) == (3, 0, 5)
    assert 3600 <= mail.oldest_seconds < 3700
    assert 3600 <= everything.oldest_seconds < 3700


async def test_minute_is_sampled_once(glance: Glance, connection: Connection) -> None:
    await glance.clear()
    await glance.minutes.record_depths(10)
    await connection.execute(WAITING, "mail", 3, MINUTE)
    await glance.minutes.record_depths(10)

    assert await now(glance.minutes, "mail") == Depth()
    await glance.elapse(MINUTE)
    await glance.minutes.record_depths(10)
    before, current = await glance.minutes.topic_minutes("mail", 2)
    assert before.depth == Depth()
    assert current.depth is not None
    assert current.depth.ready == 3


async def test_minute_without_a_sample_has_no_depth(glance: Glance) -> None:
    await glance.clear()

    assert await now(glance.minutes, "mail") is None


async def test_only_the_deepest_topics_have_a_row(glance: Glance, connection: Connection) -> None:
    await glance.clear()
    for number in range(1, 5):
        await connection.execute(WAITING, f"topic-{number}", number, MINUTE)
    await glance.minutes.record_depths(2)

    assert await glance.topics_with_minutes() == {ALL_TOPICS, "topic-3", "topic-4"}


async def test_jobs_are_not_read_in_a_minute_that_is_sampled(glance: Glance, connection: Connection) -> None:
    await glance.clear()
    await connection.execute(WAITING, "mail", 30, MINUTE)
    await glance.minutes.record_depths(10)

    plan = await explain(connection, "record_depths", "10")

    assert plan.rows_touched("jobs") == 0, plan
