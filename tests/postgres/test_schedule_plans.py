"""The plans of the schedules' statements: the idle cost of many schedules, and the ways to the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import asyncpg
import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.jobs.reads import Listing
from pulse_server.jobs.rules import JobFilter
from pulse_server.jobs.store import _SQL
from tests.postgres.query_plans import Plan, explain, explain_listing, settle_on
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

SCHEDULES = 10_000
JOBS = 50_000
BATCH = 100
_ID = "('0190f3a2-7b1c-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid"


def array(entry: Callable[[int], str]) -> str:
    return "'{" + ",".join(map(entry, range(1, BATCH + 1))) + "}'"


ONE_ID = "'0190f3a2-7b1c-7000-8001-000000000001'"
DEEP_IN_TIME = "'2026-01-01 00:20:00+00'"  # 1,200 s after the first of rows that are a second apart

FILL = f"""
INSERT INTO pulse.schedules
    (id, next_run_at, created_at, interval_ms, max_attempts, kind, name, topic, payload)
SELECT {_ID}, '2126-01-01 00:00:00+00'::timestamptz + n * interval '1 s',
       '2026-01-01 00:00:00+00'::timestamptz + n * interval '1 s',
       3600000, 5, 'interval', 'schedule-' || n, 'mail', ''
FROM generate_series(1, {SCHEDULES}) AS n;
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, max_attempts, queued, status, topic, payload, schedule_id)
SELECT gen_random_uuid(), '2026-01-01 00:00:00+00'::timestamptz + n * interval '1 s', now(), 5, true,
       'PENDING', 'mail', '', CASE n % 2 WHEN 0 THEN {ONE_ID}::uuid END
FROM generate_series(1, {JOBS}) AS n;
"""
Fill = Callable[[Connection], Awaitable[None]]


async def leave(connection: Connection) -> None:
    """No statistics: the tables were filled a moment ago."""


async def gather(connection: Connection) -> None:
    await connection.execute("ANALYZE pulse.schedules; ANALYZE pulse.jobs")


STATISTICS: dict[str, Fill] = {"missing": leave, "fresh": gather}
CASES: dict[str, tuple[str, ...]] = {
    "due_schedules": (str(BATCH),),
    "queued_schedules": (str(BATCH),),
    "fire_schedules": (
        array(lambda number: f"0190f3a2-7b1c-7000-8001-{number:012x}"),
        array(lambda number: f"2126-01-01 00:{number // 60:02}:{number % 60:02}+00"),
        array(lambda number: "2126-02-01 00:00:00+00"),
        array(lambda number: f"0190f3a2-7b1c-7000-8002-{number:012x}"),
    ),
    "list_schedules": (DEEP_IN_TIME, ONE_ID, "50", "''"),
    "get_schedule": (ONE_ID,),
    "find_schedule": ("'schedule-77'",),
    "fire_now": (ONE_ID, "gen_random_uuid()", "NULL"),
    "has_fired": (ONE_ID, ONE_ID),
    "has_declared": ("'shop'",),
    "declare_schedules": ("'shop'", array(lambda number: f"schedule-{number}"), "NULL", "1000"),
    "scheduler_status": (),
    "read_gate": (),
}
OF_ONE_SCHEDULE = JobFilter(schedule_id=ONE_ID.strip("'"))
DEEP = PageKey(datetime.fromisoformat(DEEP_IN_TIME.strip("'")), ONE_ID.strip("'"))
Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    """Every statement, explained and run on large tables, with and without statistics."""
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
        try:
            await connection.execute(FILL)
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                await settle_on(connection, HOT_PLANS)
                for name, args in CASES.items():
                    plans[statistics, name] = await explain(connection, name, *args)
                await settle_on(connection, READ_PLANS)
                listing = Listing(_SQL, "list_jobs", OF_ONE_SCHEDULE, DEEP)
                plans[statistics, "list_jobs"] = await explain_listing(
                    connection, listing, listing.page(limit=50)
                )
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


under_any_statistics = each_row("statistics", list(STATISTICS))


@under_any_statistics
def test_tick_over_schedules_that_are_not_due_is_one_index_read_of_no_row(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "due_schedules"]

    assert plan.indexes_of("schedules") == ["schedules_due"], plan
    assert plan.rows_touched("schedules") == 0, plan
    assert not [node for node in plan.nodes() if "Sort" in node["Node Type"]], plan
    assert {node["Node Type"] for node in plan.nodes()} <= {"Limit", "Index Scan"}


@under_any_statistics
def test_tick_over_schedules_that_keep_no_occurrence_reads_no_row(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "queued_schedules"]

    assert plan.indexes_of("schedules") == ["schedules_queued"], plan
    assert plan.rows_touched("schedules") == 0, plan


@under_any_statistics
def test_step_reaches_each_schedule_by_its_primary_key_and_no_job_but_those_it_makes(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "fire_schedules"]

    assert plan.root["Actual Rows"] == BATCH, "else the counts here would prove nothing"
    assert set(plan.indexes_of("schedules")) == {"schedules_pkey"}, plan
    assert plan.rows_touched("schedules") <= 3 * BATCH, plan
    assert set(plan.indexes_of("jobs")) == {"jobs_pkey"}, plan
    assert plan.rows_touched("jobs") == 0, plan


@under_any_statistics
def test_page_of_a_schedules_jobs_is_read_off_its_own_index_from_where_the_last_one_ended(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "list_jobs"]

    assert plan.root["Actual Rows"] == 50
    assert plan.indexes_of("jobs") == ["jobs_schedule"], plan
    assert plan.rows_touched("jobs") == 50, plan


@under_any_statistics
def test_page_of_schedules_is_read_off_the_index_from_where_the_last_one_ended(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "list_schedules"]

    assert plan.root["Actual Rows"] == 50
    assert plan.indexes_of("schedules") == ["schedules_oldest"], plan
    assert plan.rows_touched("schedules") == 50, plan


@under_any_statistics
@each_row(
    "name, index",
    [("get_schedule", "schedules_pkey"), ("find_schedule", "schedules_name"), ("fire_now", "schedules_pkey")],
)
def test_single_schedule_is_found_by_its_key(
    explained: Explained, statistics: str, name: str, index: str
) -> None:
    plan = explained[statistics, name]

    assert plan.indexes_of("schedules") == [index], plan
    assert plan.rows_touched("schedules") == 1, plan


@under_any_statistics
def test_declaration_of_an_application_reads_its_own_schedules_alone(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "declare_schedules"]

    assert set(plan.indexes_of("schedules")) <= {
        "schedules_name",
        "schedules_application",
        "schedules_pkey",
    }, plan
    assert plan.rows_touched("schedules") <= 5 * BATCH, plan


@under_any_statistics
def test_application_without_schedules_is_known_by_one_index_read(
    explained: Explained, statistics: str
) -> None:
    plan = explained[statistics, "has_declared"]

    assert plan.indexes_of("schedules") == ["schedules_application"], plan
    assert plan.rows_touched("schedules") <= 1, plan


@under_any_statistics
def test_job_of_a_schedule_is_found_by_its_id(explained: Explained, statistics: str) -> None:
    assert explained[statistics, "has_fired"].indexes_of("jobs") == ["jobs_pkey"]


@under_any_statistics
def test_all_schedules_at_a_glance_are_counted_off_the_indexes(explained: Explained, statistics: str) -> None:
    plan = explained[statistics, "scheduler_status"]

    assert {scan["Node Type"] for scan in plan.scans_of("schedules")} == {"Index Only Scan"}, plan
    assert plan.rows_touched("schedules") == 2 * SCHEDULES + 1, plan


@under_any_statistics
def test_refresh_of_the_gate_looks_at_no_job(explained: Explained, statistics: str) -> None:
    plan = explained[statistics, "read_gate"]

    assert plan.scans_of("jobs") == []
    assert plan.indexes_of("dispatch_control") == ["dispatch_control_pkey"], plan
