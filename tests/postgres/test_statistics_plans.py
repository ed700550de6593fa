"""Statistics are read from the minutes that they cover, however many others there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS
from tests.postgres.query_plans import Plan, explain
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

TOPICS = 30  # one of them is all topics together
DAY = 1440
FILL = f"""
INSERT INTO pulse.topic_minutes (minute, topic, submitted, wait_buckets, run_buckets)
SELECT date_trunc('minute', now()) - minutes_ago * interval '1 minute',
       CASE topic WHEN 0 THEN '' ELSE 'topic-' || topic END, 1, '{{"30": 5, "31": 2}}', '{{"50": 7}}'
FROM generate_series(0, {DAY + 200}) AS minutes_ago, generate_series(0, {TOPICS - 1}) AS topic
"""


async def leave(connection: Connection) -> None:
    """No statistics: the table was filled a moment ago."""


async def gather(connection: Connection) -> None:
    await connection.execute("ANALYZE pulse.topic_minutes")


STATISTICS: dict[str, Callable[[Connection], Awaitable[None]]] = {"missing": leave, "fresh": gather}
CASES: dict[str, tuple[str, ...]] = {
    "a topic": ("topic_minutes", "'topic-7'", str(DAY)),
    "all topics": ("topic_minutes", "''", str(DAY)),
    "the hour of each topic": ("topic_buckets",),
}
Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60, server_settings=HOT_PLANS)
        try:
            await connection.execute(FILL)
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                for case, (name, *args) in CASES.items():
                    plans[statistics, case] = await explain(connection, name, *args)
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


under_any_statistics = each_row("statistics", list(STATISTICS))


@under_any_statistics
@each_row("case", ["a topic", "all topics"])
def test_day_is_two_rows_by_their_keys_for_each_minute(
    explained: Explained, statistics: str, case: str
) -> None:
    plan = explained[statistics, case]

    assert plan.root["Actual Rows"] == DAY
    assert plan.indexes_of("topic_minutes") == ["topic_minutes_pkey"] * 2, plan
    assert plan.rows_touched("topic_minutes") == 2 * DAY, plan


@under_any_statistics
def test_hour_of_all_topics_reads_the_minutes_of_that_hour(explained: Explained, statistics: str) -> None:
    plan = explained[statistics, "the hour of each topic"]

    assert plan.root["Actual Rows"] == 3 * (TOPICS - 1)
    assert plan.indexes_of("topic_minutes") == ["topic_minutes_pkey"], plan
    assert plan.rows_touched("topic_minutes") == 60 * TOPICS, plan


@under_any_statistics
@each_row("case", list(CASES))
def test_no_job_is_looked_at(explained: Explained, statistics: str, case: str) -> None:
    assert explained[statistics, case].scans_of("jobs") == []
