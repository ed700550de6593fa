"""What operators ask about jobs, lanes and changes reads bounded parts of large tables, by their indexes.

Explained and run with the session settings of the server, with statistics that are stale, missing and fresh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg
import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.jobs.reads import Listing
from pulse_server.jobs.rules import JobFilter
from pulse_server.views import records
from pulse_server.views.records import AuditFilter
from tests.postgres import large_tables
from tests.postgres.large_tables import RUNNING, TOPICS
from tests.postgres.query_plans import Plan, explain, explain_listing, explain_text, settle_on
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

WAITING = 20_000  # half of them ready
FINISHED = 100_000
IN_LANES, LANES = 20_000, 40
AUDITED = 50_000
ASKED = 200
COUNTED = 5000
OF_EACH = 100
PAGE = 51


async def fill(connection: Connection) -> None:
    """Statistics are of a time when nothing waited."""
    await large_tables.add_finished(connection, FINISHED)
    await large_tables.gather_statistics(connection)
    await large_tables.add_backlog(connection, WAITING)
    await large_tables.add_running(connection)
    await connection.execute(
        f"""INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at, next_run_at,
                queued, status, lane, tier, rank_at)
            SELECT gen_random_uuid(), 'laned', '', 0, 5, now(), now(),
                true, 'PENDING', 'lane-' || n % {LANES}, 0, now()
            FROM generate_series(1, {IN_LANES}) AS n"""
    )
    await connection.execute(
        f"""INSERT INTO pulse.audit
                (id, at, changed, user_name, role, address, method, reason, outcome, topics, ids, asked)
            SELECT gen_random_uuid(), now() - n * interval '1 s', 1, 'user-' || n % 1000, 'operator', '',
                'Method' || n % 1000, '',
                CASE WHEN n % 1000 = 0 THEN 'PERMISSION_DENIED' ELSE 'OK' END,
                ARRAY['topic-' || n % 1000], ARRAY[gen_random_uuid()::text], '{{}}'
            FROM generate_series(1, {AUDITED}) AS n"""
    )
    await large_tables.make_all_visible(connection)
    await connection.execute("VACUUM pulse.audit")


STATISTICS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "stale": fill,
    "missing": large_tables.forget_statistics,
    "fresh": large_tables.gather_statistics,
}


class Question(NamedTuple):
    """A section with its arguments, the ways to the jobs, and how many rows of them may be seen."""

    section: str
    args: list[str]
    indexes: set[str]
    most_rows: int


_IDS = f"(SELECT array_agg(id) FROM (SELECT id FROM pulse.jobs WHERE queued LIMIT {ASKED}) AS job)"
_TOPICS = f"(SELECT array_agg('topic-' || n) FROM generate_series(0, {TOPICS - 1}) AS n)"
QUESTIONS = {
    "a page of jobs": Question("explain_jobs", ["$ids", "NULL", "25"], {"jobs_pkey"}, 3 * ASKED),
    "a topic": Question("explain_jobs", ["'{}'", "'topic-1'", "1000"], {"jobs_pkey", "jobs_claim"}, 10),
    "jobs ahead": Question("jobs_ahead", ["$topics", str(OF_EACH), "1001"], {"jobs_claim"}, TOPICS * OF_EACH),
    "long runs": Question("long_runs", ["'1 minute'", "20"], {"jobs_pkey"}, RUNNING),
    "the fullest lane": Question(
        "fullest_lanes", ["'{laned}'", str(COUNTED)], {"jobs_lane", "jobs_pkey"}, COUNTED + RUNNING
    ),
}
NOW = datetime.now(UTC)
NEWEST = PageKey(NOW, "0190f3a2-7b1c-7000-8001-000000000001")
CHANGES = {
    "all": (AuditFilter(), "audit_newest"),
    "the next page": (AuditFilter(), "audit_newest"),
    "of a user": (AuditFilter(user="user-1"), "audit_of_user"),
    "by a method": (AuditFilter(method="Method1"), "audit_of_method"),
    "refused": (AuditFilter(refused=True), "audit_refused"),
    "of a topic": (AuditFilter(topic="topic-1"), "audit_subjects"),
    "of a job": (AuditFilter(id="0190f3a2-7b1c-7000-8001-000000000001"), "audit_subjects"),
}
SEARCHES = {
    "a part of an id": "7b1c",
    "a word that is nowhere": "nowhere",
    "a field of the payload": "args.order_id=42",
}
Explained = dict[tuple[str, str, str], Plan]


def literal(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


async def plan_of_changes(connection: Connection, wanted: AuditFilter, after: PageKey | None) -> Plan:
    conditions, arguments = records._conditions_of_entries(wanted, after)
    for number in range(len(arguments), 0, -1):
        conditions = conditions.replace(f"${number}", literal(arguments[number - 1]))
    await connection.execute("SET enable_bitmapscan = on")
    return await explain_text(
        connection, f"{records._SQL['list_audit']}{conditions} ORDER BY at DESC, id DESC LIMIT {PAGE}"
    )


async def plan_of_search(connection: Connection, text: str) -> Plan:
    search = records.parse_search(text)
    listing = Listing(records._SQL, "search_jobs", JobFilter(), None)
    matches = records._conditions_of_search(search, listing)
    statement = records._comparing(listing, matches, PAGE, reads_payloads=bool(search.fields))
    return await explain_listing(connection, listing, statement)


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
        try:
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                values = {
                    "$ids": literal(await connection.fetchval(f"SELECT {_IDS}::text")),
                    "$topics": literal(await connection.fetchval(f"SELECT {_TOPICS}::text")),
                }
                await settle_on(connection, READ_PLANS)
                for name, text in SEARCHES.items():
                    plans["search", statistics, name] = await plan_of_search(connection, text)
                for name, question in QUESTIONS.items():
                    is_read = question.section in ("explain_jobs", "jobs_ahead")
                    await settle_on(connection, READ_PLANS if is_read else HOT_PLANS)
                    args = [values.get(arg, arg) for arg in question.args]
                    plans["question", statistics, name] = await explain(connection, question.section, *args)
                await settle_on(connection, READ_PLANS)
                for name, (wanted, _) in CHANGES.items():
                    after = NEWEST if name == "the next page" else None
                    plans["changes", statistics, name] = await plan_of_changes(connection, wanted, after)
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


def walked(plan: Plan) -> set[str]:
    """The ways to the jobs that were taken. Parts of a statement may not apply to the jobs in question."""
    return {
        scan.get("Index Name", scan["Node Type"]) for scan in plan.scans_of("jobs") if scan["Actual Loops"]
    }


under_any_statistics = each_row("statistics", list(STATISTICS))


@under_any_statistics
@each_row("name", list(QUESTIONS))
def test_question_reads_a_bounded_part_of_the_jobs(explained: Explained, statistics: str, name: str) -> None:
    plan, question = explained["question", statistics, name], QUESTIONS[name]

    assert walked(plan) <= question.indexes, plan
    assert plan.rows_touched() <= question.most_rows, plan


@under_any_statistics
def test_lanes_are_counted_from_the_index_alone(explained: Explained, statistics: str) -> None:
    plan = explained["question", statistics, "the fullest lane"]

    (scan,) = [scan for scan in plan.scans_of("jobs") if scan["Index Name"] == "jobs_lane"]
    assert (scan["Node Type"], scan["Heap Fetches"]) == ("Index Only Scan", 0), plan
    assert plan.sorts_over_jobs() == [], plan


@under_any_statistics
@each_row("name", list(SEARCHES))
def test_search_compares_the_newest_jobs_in_the_order_of_their_indexes(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained["search", statistics, name]

    assert set(plan.jobs_indexes()) <= {"jobs_live", "jobs_finished"}, plan
    assert plan.rows_touched() <= 2 * records.COMPARED + 2, plan
    assert plan.sorts_over_jobs() == [], plan


@under_any_statistics
@each_row("name", list(CHANGES))
def test_changes_are_found_by_the_index_of_their_filter(
    explained: Explained, statistics: str, name: str
) -> None:
    plan, (_, index) = explained["changes", statistics, name], CHANGES[name]

    names = {node["Index Name"] for node in plan.nodes() if "Index Name" in node}
    assert index in names, plan
    assert "Seq Scan" not in plan.indexes_of("audit"), plan
    assert plan.rows_touched("audit") <= 2 * PAGE, plan
