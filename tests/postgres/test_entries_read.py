"""No statement and no function reads more of a table than its own rows, whatever the planner believes.

With statistics of a time when a table was empty, the planner expects one row of it, and a walk over all of
it costs as little as a look-up. Postgres counts the entries that a transaction reads in each table and index,
also in nested statements. So each section of sql/ runs for a few rows of large tables, in each state of the
statistics, and the count is compared with a bound below one walk. ADR-0007
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from pulse_server.database.connections import HOT_PLANS
from tests.postgres.full_tables import ROWS, SMALL, STATISTICS, WORKFLOW, of_an_empty_time, of_no_time
from tests.postgres.query_plans import Plan
from tests.postgres.read_cases import CASES, ITEMS, KNOWN, SECTIONS, WITHOUT_CASE, Case, ids
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import FILES, FUNCTIONS, read
from tests.postgres_cluster import Databases
from tests.rows import each_row

EMPTY = next(name for name, state in STATISTICS.items() if state is of_an_empty_time)
MISSING = next(name for name, state in STATISTICS.items() if state is of_no_time)
# A name of a table or of a function that may read one. `'pulse.jobs'::regclass` reads none.
_NAMED = re.compile(r"(?<!')\bpulse\.(\w+)")
_READS = re.compile(r"\b(FROM|JOIN|UPDATE|INTO) pulse\.")
TRAP = Case(
    f"SELECT FROM unnest({ids('8003')}::uuid[]) AS claim (id) JOIN pulse.jobs AS job ON job.id = claim.id",
    *((), HOT_PLANS, "", 0),
)
# A statement that walks tables for each of its rows could take minutes.
TIMEOUT = "60s"
ENDLESS = 10**9
_READ = """
SELECT relname AS name, pg_stat_get_xact_tuples_returned(oid) AS entries
FROM pg_class
WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i')
  AND pg_stat_get_xact_tuples_returned(oid) > 0
"""
_CALLED = """
SELECT proname FROM pg_proc
WHERE pronamespace = 'pulse'::regnamespace AND pg_stat_get_xact_function_calls(oid) > 0
"""
_FIRST = f"""
SELECT set_config('pulse.first', node.job_id::text, true)
FROM pulse.workflow_jobs AS node WHERE node.workflow_id = '{WORKFLOW}' AND node.number = 1
"""


class Measured(NamedTuple):
    entries: dict[str, int]
    """Of each table and index."""
    seen: int
    """The rows that the busiest node of the plan saw: a join of each with each, even in memory."""
    found: int
    """The rows that the statement returned or wrote."""
    called: set[str]
    """Functions of the database."""


Measurements = dict[tuple[str, str], Measured]


def is_known(statistics: str, name: str) -> bool:
    return name in KNOWN and statistics in (EMPTY, MISSING)


async def measure(connection: Connection, case: Case) -> Measured:
    """Run it with its session settings, and roll it back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL track_functions = 'all'; {_FIRST}")
        if case.before:
            await connection.execute(case.before)
        for name, value in case.plans.items():
            await connection.execute(f"SET LOCAL {name} = {value}")
        call = case.statement
        if case.call in SECTIONS:
            await connection.execute(f"PREPARE measured AS {call}")
            call = f"EXECUTE measured ({', '.join(case.args)})" if case.args else "EXECUTE measured"
        before = await _read(connection)
        await connection.execute(f"SET LOCAL statement_timeout = '{TIMEOUT}'")
        try:
            async with connection.transaction():
                plan = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {call}")
        except asyncpg.QueryCanceledError:
            return Measured({f"not over in {TIMEOUT}": ENDLESS}, ENDLESS, 0, set())
        after = await _read(connection)
        called = {row["proname"] for row in await connection.fetch(_CALLED)}
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE ALL")
    entries = {name: count - before.get(name, 0) for name, count in after.items()}
    nodes = list(Plan(json.loads(plan)[0]["Plan"]).nodes())
    return Measured(
        {name: count for name, count in entries.items() if count},
        max(
            round((node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"])
            for node in nodes
        ),
        round(max(node["Actual Rows"] for node in nodes)),
        called,
    )


async def _read(connection: Connection) -> dict[str, int]:
    return {row["name"]: row["entries"] for row in await connection.fetch(_READ)}


@pytest.fixture(scope="module")
def measurements(databases: Databases, template_database: str) -> Measurements:
    """Each case in each state of the statistics."""
    found: Measurements = {}

    async def collect(dsn: str) -> None:
        for statistics, bring_about in STATISTICS.items():
            connection = await asyncpg.connect(dsn, timeout=60, command_timeout=120, statement_cache_size=0)
            await bring_about(connection)
            for name, case in CASES.items():
                if not is_known(statistics, name):
                    found[statistics, name] = await measure(connection, case)
            found[statistics, "trap"] = await measure(connection, TRAP)
            await connection.close()

    with databases.temporary(template_database) as dsn:
        databases.run(collect(dsn))
    return found


@each_row("statistics", list(STATISTICS))
@each_row("name", sorted(CASES))
def test_statement_reads_a_bounded_number_of_entries(
    measurements: Measurements, statistics: str, name: str
) -> None:
    if is_known(statistics, name):
        return
    measured = measurements[statistics, name]

    assert sum(measured.entries.values()) <= CASES[name].most, measured
    assert measured.seen <= CASES[name].most, measured


def names_tables(text: str) -> bool:
    """Whether the text names a table that grows, or a function."""
    return bool(set(_NAMED.findall(text)) - SMALL)


@each_row("name", sorted(CASES))
def test_statement_found_its_rows(measurements: Measurements, name: str) -> None:
    """Else the counts would prove nothing."""
    measured = measurements["of now", name]

    assert measured.entries or measured.found, measured


def test_each_section_has_a_case() -> None:
    """A new section needs one, or a reason in WITHOUT_CASE."""
    known = {case.call for case in CASES.values()} | WITHOUT_CASE.keys()

    assert {name for name, text in SECTIONS.items() if names_tables(text)} <= known
    assert WITHOUT_CASE.keys() <= SECTIONS.keys()


def test_each_function_is_called_by_a_case(measurements: Measurements) -> None:
    """A new function needs a case that calls it, unless it only computes a value from its arguments."""
    called = set().union(*(measured.called for measured in measurements.values()))
    functions = [*FUNCTIONS, *(file for file in FILES if file.startswith("database/interface/"))]
    reading = {Path(file).stem for file in functions if _READS.search(read(file))}

    assert reading - called == set()


def test_join_by_an_equality_walks_the_table(measurements: Measurements) -> None:
    """The trap that the statements avoid. If Postgres no longer has it, the counts above prove nothing."""
    measured = measurements[EMPTY, "trap"]

    assert sum(measured.entries.values()) > ROWS, measured
    assert measured.seen > ITEMS * ROWS, measured
