"""Queries of operators read the rows that they return, and never the finished ones beside them.

Explained and run with the session settings of the server, with statistics of a time when nothing was
finished, with none, and with fresh ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.jobs.reads import Listing
from pulse_server.jobs.rules import LIVE, JobFilter, JobStatus
from pulse_server.jobs.store import _SQL
from tests.postgres import large_tables
from tests.postgres.large_tables import DEAD, GROUPS, RUNNING, TOPICS
from tests.postgres.query_plans import Plan, explain, explain_listing, settle_on
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases
from tests.rows import each_row

WAITING = 20_000  # half of them ready
FINISHED = 100_000
PAGE = 51
GROUP = "group-1"


async def before_anything_was_finished(connection: Connection) -> None:
    await large_tables.add_backlog(connection, WAITING)
    await large_tables.add_running(connection)
    await large_tables.gather_statistics(connection)
    await large_tables.add_finished(connection, FINISHED)
    await large_tables.add_dead_letters(connection)
    await large_tables.make_all_visible(connection)


STATISTICS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "stale": before_anything_was_finished,
    "missing": large_tables.forget_statistics,
    "fresh": large_tables.gather_statistics,
}


def of(status: JobStatus, topic: str | None = None) -> JobFilter:
    return JobFilter(frozenset({topic}) if topic else None, frozenset({status}))


class Question(NamedTuple):
    """A filter, the ways to the jobs that may answer it, and how many rows may be seen."""

    wanted: JobFilter
    indexes: set[str]
    most_rows: int


LISTS = {
    "everything": Question(JobFilter(), {"jobs_live", "jobs_finished"}, 2 * PAGE),
    "a topic": Question(JobFilter(frozenset({"topic-1"})), {"jobs_live", "jobs_finished"}, 2 * PAGE * TOPICS),
    "two topics": Question(
        JobFilter(frozenset({"topic-1", "topic-2"})), {"jobs_live", "jobs_finished"}, 2 * PAGE * TOPICS
    ),
    "what is not finished": Question(JobFilter(statuses=LIVE), {"jobs_live"}, PAGE),
    "what waits": Question(of(JobStatus.PENDING), {"jobs_live"}, PAGE + RUNNING),
    "what runs": Question(of(JobStatus.RUNNING), {"jobs_pkey"}, RUNNING),
    "dead letters": Question(of(JobStatus.DEAD_LETTERED), {"jobs_unsuccessful"}, PAGE),
    "dead letters of a topic": Question(
        of(JobStatus.DEAD_LETTERED, "topic-1"), {"jobs_unsuccessful"}, PAGE * TOPICS
    ),
    "dead letters that are not there": Question(
        of(JobStatus.DEAD_LETTERED, "unused"), {"jobs_unsuccessful"}, DEAD
    ),
    "dead letters of a group and a topic": Question(
        replace(of(JobStatus.DEAD_LETTERED, "topic-1"), error_group=GROUP), {"jobs_dead_letters"}, PAGE
    ),
    "what was completed": Question(of(JobStatus.COMPLETED), {"jobs_completed"}, PAGE),
    "what was completed or canceled": Question(
        JobFilter(statuses=frozenset({JobStatus.COMPLETED, JobStatus.CANCELED})),
        {"jobs_completed", "jobs_unsuccessful"},
        2 * PAGE,
    ),
    "jobs of a schedule": Question(
        JobFilter(schedule_id=large_tables.dead_letter_ids(1)[0]), {"jobs_schedule"}, 0
    ),
    "jobs of a lane": Question(JobFilter(frozenset({"topic-1"}), lane="customer-42"), {"jobs_of_lane"}, 0),
    "what waits in a lane": Question(
        replace(of(JobStatus.PENDING, "topic-1"), lane="customer-42"), {"jobs_of_lane"}, 0
    ),
}
# Filters whose lists read a bounded number of jobs: the last of them is found first.
BOUNDED = {
    "metadata": JobFilter(metadata={"tenant": "rare"}),
    "error": JobFilter(error_contains="timeout"),
    "a topic": JobFilter(frozenset({"topic-1"})),
    "what a topic completed": of(JobStatus.COMPLETED, "topic-1"),
}
COUNTS = {
    "what is not finished": Question(JobFilter(statuses=LIVE), {"jobs_live"}, WAITING + RUNNING),
    "what waits": Question(of(JobStatus.PENDING), {"jobs_live"}, WAITING + RUNNING),
    "what runs": Question(of(JobStatus.RUNNING), {"jobs_pkey"}, RUNNING),
    "dead letters": Question(of(JobStatus.DEAD_LETTERED), {"jobs_unsuccessful"}, DEAD),
    "dead letters of a topic": Question(of(JobStatus.DEAD_LETTERED, "topic-1"), {"jobs_unsuccessful"}, DEAD),
    "dead letters of a group": Question(
        replace(of(JobStatus.DEAD_LETTERED), error_group=GROUP), {"jobs_dead_letters"}, DEAD // GROUPS + 1
    ),
}
SECTIONS = {
    "topic_depths": (
        # The running jobs are in the claim index, and looked up.
        ["jobs_claim", "jobs_due", "jobs_held", "jobs_lane", "jobs_pkey", "jobs_unsuccessful"],
        WAITING + 2 * RUNNING + DEAD,
    ),
    "held_jobs": (["jobs_pkey"], RUNNING),
    # Each is counted, and the newest of each group and topic are walked to and fetched.
    "list_dead_letter_groups": (
        ["jobs_dead_letters", "jobs_dead_letters", "jobs_pkey"],
        DEAD + 2 * GROUPS * TOPICS,
    ),
}
Explained = dict[tuple[str, str, str], Plan]


@pytest.fixture(scope="module")
def explained(databases: Databases, template_database: str) -> Explained:
    plans: Explained = {}

    async def collect(dsn: str) -> None:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
        try:
            for statistics, bring_about in STATISTICS.items():
                await bring_about(connection)
                await settle_on(connection, READ_PLANS)
                for name, question in LISTS.items():
                    listing = Listing(_SQL, "list_jobs", question.wanted)
                    statement = listing.page(limit=PAGE)
                    plans["list", statistics, name] = await explain_listing(connection, listing, statement)
                for name, wanted in BOUNDED.items():
                    listing = Listing(_SQL, "matching_jobs", wanted.as_read())
                    statement = listing.page(limit=1, offset=PAGE)
                    plans["end", statistics, name] = await explain_listing(connection, listing, statement)
                for name, question in COUNTS.items():
                    listing = Listing(_SQL, "count_matching_jobs", question.wanted)
                    statement = listing.count()
                    plans["count", statistics, name] = await explain_listing(connection, listing, statement)
                await settle_on(connection, HOT_PLANS)
                plans["glance", statistics, "topic_depths"] = await explain(connection, "topic_depths")
                plans["glance", statistics, "held_jobs"] = await explain(connection, "held_jobs", "20")
                plans["glance", statistics, "list_dead_letter_groups"] = await explain(
                    connection, "list_dead_letter_groups", "NULL", "1000"
                )
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return plans


under_any_statistics = each_row("statistics", list(STATISTICS))


@under_any_statistics
@each_row("name", list(LISTS))
def test_list_reads_about_a_page_in_the_order_of_its_index(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained["list", statistics, name]

    assert set(plan.jobs_indexes()) <= LISTS[name].indexes, plan
    assert plan.rows_touched() <= LISTS[name].most_rows, plan
    if "jobs_pkey" not in plan.jobs_indexes():  # few, and in another order
        assert plan.sorts_over_jobs() == [], plan


@under_any_statistics
@each_row("name", list(BOUNDED))
def test_end_of_a_bounded_list_is_found_in_the_indexes_alone(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained["end", statistics, name]

    assert {scan["Node Type"] for scan in plan.scans_of("jobs")} == {"Index Only Scan"}, plan


@under_any_statistics
@each_row("name", list(COUNTS))
def test_count_reads_no_finished_job_that_it_does_not_count(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained["count", statistics, name]

    assert set(plan.jobs_indexes()) <= COUNTS[name].indexes, plan
    assert plan.rows_touched() <= COUNTS[name].most_rows, plan


@under_any_statistics
def test_count_of_dead_letters_by_topic_reads_the_index_alone(explained: Explained, statistics: str) -> None:
    plan = explained["count", statistics, "dead letters of a topic"]

    assert {scan["Node Type"] for scan in plan.scans_of("jobs")} == {"Index Only Scan"}, plan


@under_any_statistics
@each_row("name", list(SECTIONS))
def test_glance_walks_the_indexes_of_what_is_not_completed(
    explained: Explained, statistics: str, name: str
) -> None:
    plan = explained["glance", statistics, name]
    indexes, rows = SECTIONS[name]

    assert plan.jobs_indexes() == indexes, plan
    assert plan.rows_touched() == rows, plan


@under_any_statistics
def test_depths_go_to_the_table_for_the_running_jobs_alone(explained: Explained, statistics: str) -> None:
    plan = explained["glance", statistics, "topic_depths"]

    for scan in plan.scans_of("jobs"):
        if scan["Index Name"] != "jobs_pkey":
            assert scan["Node Type"] == "Index Only Scan", plan
            assert scan["Heap Fetches"] == 0, plan


@under_any_statistics
def test_groups_of_dead_letters_go_to_the_table_for_their_samples_alone(
    explained: Explained, statistics: str
) -> None:
    plan = explained["glance", statistics, "list_dead_letter_groups"]

    for scan in plan.scans_of("jobs"):
        if scan["Index Name"] != "jobs_pkey":
            assert scan["Node Type"] == "Index Only Scan", plan
            assert scan["Heap Fetches"] == 0, plan
