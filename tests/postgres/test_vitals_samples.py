"""What the samples of the queue and of its database say, against rows and sessions that are known."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse_server.database.connections import Database
from pulse_server.views.vitals import TopicVitals, VitalsQueries
from tests.fakes.time_machines import check_running_jobs
from tests.postgres.planning import HOUR, MINUTE, Planning
from tests.postgres.sessions import Connection

ALL_TOPICS = 1000


@pytest.fixture
async def vitals(database_dsn: str) -> AsyncIterator[VitalsQueries]:
    """On a database that no other test has a session in."""
    database = Database(database_dsn)
    yield VitalsQueries(database)
    await database.close()


@pytest.fixture
async def session(database_dsn: str) -> AsyncIterator[Connection]:
    session = await asyncpg.connect(database_dsn, timeout=60, command_timeout=60)
    yield session
    session.terminate()


async def add_jobs(
    session: Connection, count: int, *, topic: str = "mail", status: str = "PENDING", due_seconds_ago: int = 0
) -> None:
    is_running, is_finished = status == "RUNNING", status in ("COMPLETED", "DEAD_LETTERED", "CANCELED")
    await session.execute(
        """INSERT INTO pulse.jobs (id, topic, payload, max_attempts, submitted_at, next_run_at, queued,
                                   status, locked_by, lease_until, finished_at, ended_as)
           SELECT gen_random_uuid(), $2, '', 5, now(), now() + (n / 1000.0 - $4) * interval '1 s', $5, $3,
                  CASE WHEN $6 THEN 'w' END, CASE WHEN $6 THEN now() END, CASE WHEN $7 THEN now() END,
                  CASE WHEN $3 IN ('DEAD_LETTERED', 'CANCELED') THEN $3 END
           FROM generate_series(0, $1 - 1) AS n""",
        count,
        topic,
        status,
        due_seconds_ago,
        status == "PENDING" or is_running,
        is_running,
        is_finished,
    )
    if is_running:
        await check_running_jobs(session)


async def test_ready_jobs_are_counted_by_topic_with_the_age_of_the_oldest(
    vitals: VitalsQueries, session: Connection
) -> None:
    await add_jobs(session, 3, topic="mail", due_seconds_ago=60)
    await add_jobs(session, 2, topic="mail", due_seconds_ago=10)
    await add_jobs(session, 1, topic="sms", due_seconds_ago=5)
    await add_jobs(session, 4, topic="sms", status="COMPLETED", due_seconds_ago=900)

    sample = {entry.topic: entry for entry in await vitals.jobs_by_topic(ALL_TOPICS)}

    assert {topic: entry.ready for topic, entry in sample.items()} == {"mail": 5, "sms": 1}
    assert 60 <= sample["mail"].oldest_seconds < 90
    assert 5 <= sample["sms"].oldest_seconds < 35


async def test_age_is_counted_from_when_a_job_was_due_not_from_its_submit(
    vitals: VitalsQueries, session: Connection
) -> None:
    await add_jobs(session, 1)
    await session.execute("UPDATE pulse.jobs SET submitted_at = now() - interval '1 day'")

    (sample,) = await vitals.jobs_by_topic(ALL_TOPICS)

    assert sample.oldest_seconds < 60


async def test_topics_past_the_deepest_are_summed(vitals: VitalsQueries, session: Connection) -> None:
    for number in range(1, 6):
        await add_jobs(session, number, topic=f"topic-{number}", due_seconds_ago=100 - number)

    sample = {entry.topic: entry for entry in await vitals.jobs_by_topic(2)}

    assert {topic: entry.ready for topic, entry in sample.items()} == {
        "topic-5": 5,
        "topic-4": 4,
        None: 1 + 2 + 3,
    }
    assert 99 <= sample[None].oldest_seconds < 130


async def test_empty_queue_has_no_topics(vitals: VitalsQueries) -> None:
    assert await vitals.jobs_by_topic(ALL_TOPICS) == []


async def test_job_due_by_a_clock_that_runs_ahead_is_not_of_negative_age(
    vitals: VitalsQueries, session: Connection
) -> None:
    await add_jobs(session, 1, due_seconds_ago=-30)

    assert await vitals.jobs_by_topic(ALL_TOPICS) == [TopicVitals("mail", 1, 0.0, 0)]


async def test_running_jobs_and_dead_letters_are_counted(vitals: VitalsQueries, session: Connection) -> None:
    for count, status in (
        (1, "PENDING"),
        (2, "RUNNING"),
        (3, "DEAD_LETTERED"),
        (4, "COMPLETED"),
        (5, "CANCELED"),
    ):
        await add_jobs(session, count, status=status)

    await add_jobs(session, 1, topic="sms", status="DEAD_LETTERED")

    assert await vitals.count_running() == 2
    sample = {entry.topic: entry.dead_letters for entry in await vitals.jobs_by_topic(ALL_TOPICS)}
    assert sample == {"mail": 3, "sms": 1}


async def test_table_is_measured(vitals: VitalsQueries, session: Connection) -> None:
    await add_jobs(session, 100)
    size = (await vitals.measure_database()).jobs_bytes

    live = await session.fetchval("SELECT pg_total_relation_size('pulse.jobs')")
    completed = await session.fetchval(
        "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('pulse.completed_jobs')"
    )
    assert size == live + completed
    assert (await vitals.measure_database()).dead_rows >= 0


async def test_lag_is_that_of_the_most_overdue_schedule_that_is_not_paused(
    shared_dsn: str, planning: Planning
) -> None:
    database = Database(shared_dsn)
    try:
        vitals = VitalsQueries(database)
        assert (await vitals.measure_database()).schedule_lag_seconds == 0
        await planning.make()
        assert (await vitals.measure_database()).schedule_lag_seconds == 0
        await planning.make(overdue=5 * MINUTE)
        paused = await planning.make(overdue=2 * HOUR)
        await planning.service.pause(paused.id)

        lag = (await vitals.measure_database()).schedule_lag_seconds

        assert 300 <= lag < 360
    finally:
        await database.close()


async def test_database_that_answers_is_pinged(vitals: VitalsQueries) -> None:
    await vitals.ping()
