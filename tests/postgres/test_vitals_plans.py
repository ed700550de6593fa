"""The samples of the queue read indexes, and the jobs that run, however many finished jobs lie in the table.

Explained and run with the session settings of the server, with statistics that are stale, missing and fresh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS
from tests.postgres import large_tables
from tests.postgres.query_plans import Plan, explain
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

READY = 20_000
RUNNING = 2_000
DEAD = 500
MOST_TOPICS = 1000


async def before_anything_waited(connection: Connection) -> None:
    """What the planner believes is from a time when every job was finished."""
    await large_tables.add_finished(connection, 100_000)
    await large_tables.gather_statistics(connection)
    await large_tables.add_backlog(connection, 2 * READY)
    await large_tables.add_running(connection, RUNNING)
    await connection.execute(
        f"""UPDATE pulse.jobs SET status = 'DEAD_LETTERED', ended_as = 'DEAD_LETTERED'
            WHERE id IN (SELECT id FROM pulse.jobs WHERE status = 'COMPLETED' ORDER BY id LIMIT {DEAD})"""
    )
    await connection.execute(
        """INSERT INTO pulse.schedules (id, next_run_at, interval_ms, max_attempts, kind, topic, payload)
           SELECT gen_random_uuid(), now() + n * interval '1 s', 1000, 5, 'interval', 'mail', ''
           FROM generate_series(1, 2000) AS n"""
    )
    await large_tables.make_all_visible(connection)


STATISTICS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "stale": before_anything_waited,
    "missing": large_tables.forget_statistics,
    "fresh": large_tables.gather_statistics,
}


class Case(NamedTuple):
    args: list[str]
    indexes: list[str]
    rows: int


CASES = {
    "jobs_by_topic": Case(
        [str(MOST_TOPICS)],
        ["jobs_claim", "jobs_lane", "jobs_pkey", "jobs_unsuccessful"],
        READY + 2 * RUNNING + DEAD,
    ),
    "count_running": Case([], ["jobs_pkey"], RUNNING),
    "measure_database": Case([], [], 0),
}
Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60, server_settings=HOT_PLANS)
        try:
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                for name, case in CASES.items():
                    plans[statistics, name] = await explain(connection, name, *case.args)
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


under_any_statistics = each_row("statistics", list(STATISTICS))
of_every_sample = each_row("name", list(CASES))


@under_any_statistics
@of_every_sample
def test_sample_goes_to_the_table_for_the_running_jobs_alone(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained[statistics, name]

    assert plan.jobs_indexes() == CASES[name].indexes, plan
    for scan in plan.scans_of("jobs"):
        if scan["Index Name"] != "jobs_pkey":
            assert scan["Node Type"] == "Index Only Scan", plan
            assert scan["Heap Fetches"] == 0, plan


@under_any_statistics
@of_every_sample
def test_sample_sees_only_the_rows_that_it_counts(explained: Explained, statistics: str, name: str) -> None:
    assert explained[statistics, name].rows_touched() == CASES[name].rows


@under_any_statistics
def test_running_jobs_are_told_from_ready_ones_by_a_hash_table(explained: Explained, statistics: str) -> None:
    """Else each ready job would be compared with every running one."""
    plan = explained[statistics, "jobs_by_topic"]

    (scan,) = [scan for scan in plan.scans_of("jobs") if scan["Index Name"] == "jobs_claim"]
    assert "hashed" in scan["Filter"], plan


@under_any_statistics
def test_depth_of_topics_needs_no_sort_of_the_ready_jobs(explained: Explained, statistics: str) -> None:
    """The dead letters, and the counts of the topics, may be sorted."""
    sorts = explained[statistics, "jobs_by_topic"].sorts_over_jobs()
    assert all(sort["Actual Rows"] <= DEAD for sort in sorts)


@under_any_statistics
def test_most_overdue_schedule_is_the_head_of_its_index(explained: Explained, statistics: str) -> None:
    plan = explained[statistics, "measure_database"]

    assert plan.indexes_of("schedules") == ["schedules_due"], plan
    assert plan.rows_touched("schedules") == 1, plan
