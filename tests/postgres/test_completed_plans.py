"""The plans of statements that read completed jobs, over 30 days, whatever the planner believes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg
import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.jobs.reads import Listing
from pulse_server.jobs.rules import TERMINAL, JobFilter, JobStatus
from tests.postgres.query_plans import _SQL, Plan, explain, explain_listing, settle_on
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

DAYS = 30
A_DAY = 2_000  # jobs, of ten topics; every tenth has a key
APART = (DAYS - 3) * 86400 // (DAYS * A_DAY)  # seconds
BATCH = 100
PAGE = 50
SEARCHED = 5_000  # jobs that a list of a topic may read
SCHEDULE = "'0190f3a2-7b1c-7000-8009-000000000001'"

# Up to the day after tomorrow. The template has three days: after midnight they begin with yesterday.
PARTITIONS = f"""
DO $$ DECLARE
    day timestamptz;
    name text;
BEGIN FOR ago IN -2..{DAYS - 3} LOOP
    day := date_trunc('day', now(), 'UTC') - ago * interval '24 hours';
    name := 'completed_jobs_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
    CONTINUE WHEN to_regclass('pulse.' || name) IS NOT NULL;
    EXECUTE format(
        'CREATE TABLE pulse.%I PARTITION OF pulse.completed_jobs_by_day FOR VALUES FROM (%L) TO (%L)',
        name, day, day + interval '24 hours');
END LOOP; END $$
"""
FILL = f"""
INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts,
    max_attempts, delivered, topic, payload, finished_by, idempotency_key, schedule_id)
SELECT ('0190f3a2-7b1c-7000-8004-' || lpad(to_hex(n), 12, '0'))::uuid, made.at, made.at, made.at, made.at,
    0, 1, 5, true, 'topic-' || n % 10, '{{}}', 'worker-1', CASE WHEN n % 10 = 0 THEN 'key-' || n END,
    CASE WHEN n % 100 = 0 THEN {SCHEDULE}::uuid END
FROM generate_series(1, {DAYS * A_DAY}) AS n
CROSS JOIN LATERAL (SELECT now() - interval '{DAYS - 3} days' + n * interval '{APART} s') AS made (at)
"""


def ids(count: int = BATCH) -> str:
    """As many ids as a batch holds, spread over the days."""
    step = DAYS * A_DAY // count
    return f"'{{{','.join(f'0190f3a2-7b1c-7000-8004-{number * step + 1:012x}' for number in range(count))}}}'"


def keys() -> str:
    return f"'{{{','.join(f'key-{number * 10}' for number in range(1, BATCH + 1))}}}'"


class Case(NamedTuple):
    """A statement, its arguments, the indexes of each partition it may use, and how many rows it may see."""

    statement: str
    args: list[str]
    indexes: set[str]
    most_rows: int


_NEW = [ids(), f"array_fill('topic-0'::text, ARRAY[{BATCH}])", f"array_fill(''::bytea, ARRAY[{BATCH}])"]
CASES = {
    "look up": Case("look_up_jobs", [ids()], {"id"}, BATCH),
    "finished": Case("finished_jobs", [ids(), "1000000"], {"id"}, BATCH),
    "job statuses": Case("job_statuses", [ids()], {"id"}, BATCH),
    "lock free": Case("lock_free_jobs", [ids()], {"id"}, BATCH),
    "lock deletable": Case("lock_deletable_jobs", [ids()], {"id"}, BATCH),
    "delete": Case("delete_jobs", [ids(), "'{COMPLETED}'"], {"id"}, BATCH),
    "get": Case("get_job", [ids(1).strip("'{}").join("''")], {"id"}, 1),
    "prefix": Case(
        "find_jobs",
        ["'0190f3a2-0000-0000-0000-000000000000'", "'0190f3a2-ffff-ffff-ffff-ffffffffffff'", str(BATCH)],
        {"id"},
        # Each partition contributes its first.
        BATCH + DAYS,
    ),
    "find existing": Case(
        "find_existing",
        [*_NEW, "NULL", "NULL"],
        {"id"},
        BATCH,
    ),
    "find existing by key": Case(
        "find_existing_by_key",
        [*_NEW, "NULL", keys()],
        {"key"},
        BATCH,
    ),
    "has fired": Case("has_fired", [SCHEDULE, ids(1).strip("'{}").join("''")], {"id"}, 1),
}
LISTS = {
    "everything": (JobFilter(), {"newest"}, PAGE + DAYS),
    "completed": (JobFilter(statuses=frozenset({JobStatus.COMPLETED})), {"newest"}, PAGE + DAYS),
    "finished": (JobFilter(statuses=TERMINAL), {"newest"}, PAGE + DAYS),
    "of a topic": (JobFilter(frozenset({"topic-1"})), {"newest"}, 10 * (PAGE + DAYS)),
    "of two topics": (JobFilter(frozenset({"topic-1", "topic-2"})), {"newest"}, 10 * (PAGE + DAYS)),
    "of a schedule": (JobFilter(schedule_id=SCHEDULE.strip("'")), {"schedule"}, PAGE + DAYS),
}
_INDEXES = {
    "id_idx": "id",
    "topic_idempotency_key_idx": "key",
    "submitted_at_id_topic_idx": "newest",
    "schedule_id_submitted_at_id_idx": "schedule",
}
Fill = Callable[[Connection], Awaitable[Any]]


async def fill_after_the_statistics_were_gathered(connection: Connection) -> None:
    await connection.execute(PARTITIONS)
    await connection.execute("ANALYZE pulse.completed_jobs; ANALYZE pulse.jobs")
    await connection.execute(FILL)


async def forget(connection: Connection) -> None:
    await connection.execute(
        "DELETE FROM pg_statistic "
        "WHERE starelid IN (SELECT relid FROM pg_partition_tree('pulse.completed_jobs'))"
    )
    unknown = -1 if connection.get_server_version().major >= 14 else 0
    await connection.execute(
        f"UPDATE pg_class SET reltuples = {unknown}, relpages = 0 "
        "WHERE oid IN (SELECT relid FROM pg_partition_tree('pulse.completed_jobs'))"
    )


async def gather(connection: Connection) -> None:
    await connection.execute("ANALYZE pulse.completed_jobs")


STATISTICS: dict[str, Fill] = {
    "stale": fill_after_the_statistics_were_gathered,
    "missing": forget,
    "fresh": gather,
}
Explained = dict[tuple[str, str], Plan]


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
        try:
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                await settle_on(connection, HOT_PLANS)
                for name, case in CASES.items():
                    plans[statistics, name] = await explain(connection, case.statement, *case.args)
                for name, plan in (await looks_of_inserts(connection)).items():
                    plans[statistics, name] = plan
                await settle_on(connection, READ_PLANS)
                for name, (wanted, _, _) in LISTS.items():
                    listing = Listing(_SQL, "list_jobs", wanted)
                    statement = listing.page(limit=PAGE)
                    plans[statistics, f"list {name}"] = await explain_listing(connection, listing, statement)
                plans[statistics, "list bounded"] = await bounded_list(connection)
                plans[statistics, "end of a list"] = await end_of_list(connection)
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


async def bounded_list(connection: Connection) -> Plan:
    """The plan of a list of a topic without jobs, back to the time of SEARCHED jobs."""
    moment = await connection.fetchval("SELECT max(submitted_at) FROM pulse.completed_jobs")
    until = PageKey(
        moment - timedelta(seconds=(SEARCHED - 1) * APART), "0190f3a2-0000-7000-8004-000000000000"
    )
    listing = Listing(_SQL, "list_jobs", JobFilter(frozenset({"unused"})), until=until)
    return await explain_listing(connection, listing, listing.page(limit=PAGE))


async def end_of_list(connection: Connection) -> Plan:
    listing = Listing(_SQL, "matching_jobs", JobFilter(frozenset({"unused"})).as_read())
    return await explain_listing(connection, listing, listing.page(limit=1, offset=SEARCHED - 1))


async def looks_of_inserts(connection: Connection) -> dict[str, Plan]:
    """The plans inside of completed_among: by id, with and without a bound in time, and by key."""
    await connection.execute(
        "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; "
        "SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on; "
        "SET auto_explain.log_timing = off; SET auto_explain.log_format = json; "
        "SET auto_explain.log_level = notice; SET client_min_messages = notice"
    )
    messages: list[str] = []
    connection.add_log_listener(lambda _, message: messages.append(message.message))
    asked = {
        "look by fresh ids": (f"'{{{a_fresh_id()}}}'", "NULL", "now() - interval '1 hour'"),
        "look by any ids": (f"'{{{a_fresh_id()}}}'", "NULL", "NULL"),
        "look by keys": (f"'{{{a_fresh_id()}}}'", f"'{{{a_fresh_id()}}}'", "now() - interval '1 hour'"),
    }
    plans = {}
    for name, arguments in asked.items():
        messages.clear()
        await connection.fetchval(f"SELECT pulse.completed_among_v1({', '.join(arguments)})")
        nested = [
            json.loads(text[text.index("{") :])["Plan"] for text in messages if "completed_jobs" in text
        ]
        plans[name] = Plan({"Node Type": "Nested", "Plans": nested})
    return plans


def a_fresh_id() -> str:
    return "0190f3a2-7b1c-7000-8fff-000000000001"


def scans(plan: Plan) -> list[dict[str, Any]]:
    return [
        node
        for node in plan.nodes()
        if node.get("Relation Name", "").startswith("completed_jobs") and node["Node Type"] != "ModifyTable"
    ]


def indexes(plan: Plan) -> set[str]:
    """The ways to the partitions, by the columns that the name of an index ends with."""
    found = set()
    for node in scans(plan):
        index = node.get("Index Name", node["Node Type"])
        table = node["Relation Name"]
        found.add(_INDEXES.get(index.removeprefix(f"{table}_"), index))
    return found


def rows_touched(plan: Plan) -> int:
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in scans(plan)
    )


under_any_statistics = each_row("statistics", list(STATISTICS))


@under_any_statistics
@each_row("name", list(CASES))
def test_statement_reaches_completed_jobs_by_index_and_reads_no_more_than_a_batch(
    explained: Explained, statistics: str, name: str
) -> None:
    plan, case = explained[statistics, name], CASES[name]

    assert indexes(plan) == case.indexes, plan
    assert 0 < rows_touched(plan) <= case.most_rows, plan


@under_any_statistics
@each_row("name", list(LISTS))
def test_page_is_read_off_the_index_of_each_day_in_its_order(
    explained: Explained, statistics: str, name: str
) -> None:
    plan, (_, expected, most_rows) = explained[statistics, f"list {name}"], LISTS[name]

    assert indexes(plan) == expected, plan
    assert 0 < rows_touched(plan) <= most_rows, plan


@under_any_statistics
def test_list_of_a_topic_without_jobs_reads_no_further_than_its_bound(
    explained: Explained, statistics: str
) -> None:
    page, end = explained[statistics, "list bounded"], explained[statistics, "end of a list"]

    assert indexes(page) == indexes(end) == {"newest"}, page
    assert rows_touched(page) == SEARCHED, page
    assert SEARCHED <= rows_touched(end) <= SEARCHED + DAYS, end


@under_any_statistics
def test_insert_looks_for_fresh_ids_in_the_partitions_around_now_alone(
    explained: Explained, statistics: str
) -> None:
    fresh, any_time = (explained[statistics, f"look by {which} ids"] for which in ("fresh", "any"))

    assert indexes(fresh) == indexes(any_time) == {"id"}, fresh
    assert rows_touched(fresh) == rows_touched(any_time) == 0
    assert len(scans(fresh)) <= 4, "the day of an hour ago, what is kept longer, today and tomorrow"
    assert len(scans(any_time)) == DAYS + 2, "every day, what has none, and what is kept longer"


@under_any_statistics
def test_insert_looks_for_keys_by_their_index(explained: Explained, statistics: str) -> None:
    plan = explained[statistics, "look by keys"]

    assert indexes(plan) == {"id", "key"}, plan
    assert rows_touched(plan) == 0
