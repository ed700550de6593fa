"""A walk over a day reads a batch of its index, and so does an export, with or without statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.database.statements import statements
from tests.postgres.completed_jobs import DAY, add_completed, add_days, today
from tests.postgres.day_rounds import name
from tests.postgres.query_plans import Plan
from tests.postgres.sessions import Connection

BATCH = 200
ROWS = 20_000
BEGINNING = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


@pytest.fixture
async def connection(connection: Connection) -> Connection:
    """A day with many jobs of one topic, a few of another, and no statistics."""
    await add_days(connection, 9)
    await connection.execute(f"ALTER TABLE pulse.{name(9)} SET (autovacuum_enabled = false)")
    await add_completed(connection, ROWS, 9 * DAY)
    await add_completed(connection, 50, 9 * DAY, "audit")
    await connection.execute("INSERT INTO pulse.topic_rules (topic, completed_kept) VALUES ('audit', '30 d')")
    return connection


async def plan_of(connection: Connection, settings: dict[str, str], statement: str, *args: object) -> Plan:
    for setting, value in settings.items():
        await connection.execute(f"SET {setting} = {value}")
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *args)
    return Plan(json.loads(rows[0][0])[0]["Plan"])


def of_the_day(section: str) -> str:
    sql = statements("work/completed_days.sql")[section]
    return sql.replace("pulse.completed_jobs_day ", f"pulse.{name(9)} ")


def walks(plan: Plan, partition: str) -> Sequence[str]:
    return [index for index in plan.indexes_of(partition) if "submitted_at" in index]


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_walk_for_shorter_policies_reads_a_batch(connection: Connection, is_analyzed: bool) -> None:
    if is_analyzed:
        await connection.execute("ANALYZE")
    plan = await plan_of(
        *(connection, HOT_PLANS, of_the_day("delete_expired_completed")),
        *(timedelta(days=7), *BEGINNING, BATCH, False),
    )
    assert plan.rows_touched(name(9)) <= 3 * BATCH
    assert len(walks(plan, name(9))) == 1


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("without_policy", [False, True])
async def test_walk_for_what_is_kept_longer_reads_a_batch(
    connection: Connection, is_analyzed: bool, without_policy: bool
) -> None:
    if is_analyzed:
        await connection.execute("ANALYZE")
    begin = datetime.combine(today() - 9 * DAY, datetime.min.time(), UTC)
    plan = await plan_of(
        *(connection, HOT_PLANS, of_the_day("keep_longer")),
        *(timedelta(days=7), *BEGINNING, BATCH, begin, begin + DAY, 8 * 1024 * 1024, without_policy),
    )
    assert plan.rows_touched(name(9)) <= 3 * BATCH
    assert len(walks(plan, name(9))) == 1


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("topic", [None, "audit", "nothing"])
async def test_export_reads_a_batch(connection: Connection, is_analyzed: bool, topic: str | None) -> None:
    if is_analyzed:
        await connection.execute("ANALYZE")
    plan = await plan_of(
        *(connection, READ_PLANS, statements("views/records.sql")["export_jobs"]),
        *(*BEGINNING, BATCH, 1024 * 1024, None, datetime.now(UTC), topic and [topic], ["COMPLETED"]),
    )
    assert plan.rows_touched(name(9)) <= 2 * BATCH
    assert "Seq Scan" not in plan.indexes_of(name(9))


async def test_export_of_other_jobs_reads_no_completed_one(connection: Connection) -> None:
    plan = await plan_of(
        *(connection, READ_PLANS, statements("views/records.sql")["export_jobs"]),
        *(*BEGINNING, BATCH, 1024 * 1024, None, datetime.now(UTC), None, ["DEAD_LETTERED", "CANCELED"]),
    )
    assert plan.rows_touched(name(9)) == 0
