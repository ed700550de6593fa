"""The plans of the hot statements, at 200,000 waiting jobs, whatever the planner believes about them.

A plan that turns is how such queues die: all is well for months, until the statistics are gathered at a bad
moment. So each statement is explained and run, with the session settings of the server, against tables of
different make-up, each with statistics that are stale, missing, of an empty table, and fresh.
"""

from __future__ import annotations

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS
from tests.postgres import large_tables
from tests.postgres.hot_statements import ANSWERS, CASES
from tests.postgres.planned_tables import BATCH, STATISTICS, TABLES
from tests.postgres.query_plans import Plan, explain, explain_text
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module", params=list(TABLES))
def explained(request: pytest.FixtureRequest, databases: Databases, template_database: str) -> Explained:
    """Every case under every state of the statistics, explained and run on one table."""
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60, server_settings=HOT_PLANS)
        try:
            await TABLES[request.param](connection)
            for statistics, bring_about in STATISTICS.items():
                await connection.execute("SET statement_timeout = 0")
                await bring_about(connection)
                # A walk for each row would take minutes.
                await connection.execute("SET statement_timeout = '30 s'")
                for name, case in CASES.items():
                    plans[statistics, name] = await explain(connection, case.statement, *case.args)
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


under_any_statistics = each_row("statistics", list(STATISTICS))
of_every_statement = each_row("name", list(CASES))


@under_any_statistics
@of_every_statement
def test_statement_reaches_its_rows_by_its_own_index(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained[statistics, name]

    assert plan.jobs_indexes() == CASES[name].indexes, plan


@under_any_statistics
@of_every_statement
def test_statement_sees_a_batch_of_rows_however_many_wait(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained[statistics, name]

    assert plan.rows_touched() <= CASES[name].most_rows, plan


@under_any_statistics
@of_every_statement
def test_statement_sorts_no_more_than_a_batch(explained: Explained, statistics: str, name: str) -> None:
    plan = explained[statistics, name]

    assert plan.sorts_over_jobs() == [], plan


@under_any_statistics
@of_every_statement
def test_statement_found_its_rows(explained: Explained, statistics: str, name: str) -> None:
    """Else the counts above would prove nothing."""
    plan = explained[statistics, name]

    assert plan.root["Actual Rows"] >= ANSWERS.get(name, BATCH), plan
    assert plan.rows_touched() >= min(BATCH, CASES[name].most_rows), plan


def test_plans_are_generic() -> None:
    """Custom plans would be made for the arguments at hand, and turn with them."""
    assert HOT_PLANS["plan_cache_mode"] == "force_generic_plan"


async def test_reading_of_plans_notices_a_backlog_that_is_sorted(connection: Connection) -> None:
    """The shape that the claim must not have: without the merge the planner sorts all that is ready."""
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    await large_tables.add_backlog(connection, 2000)
    await large_tables.gather_statistics(connection)

    plan = await explain_text(
        connection,
        "SELECT id FROM pulse.jobs WHERE topic = ANY('{topic-1,topic-2}') AND queued "
        "ORDER BY priority DESC, submitted_at, id LIMIT 10",
    )

    assert plan.sorts_over_jobs()
    assert plan.rows_touched() >= 400
