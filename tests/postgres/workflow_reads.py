"""A large workflow under statistics of another time, and how many entries a statement reads of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pulse_server.database.connections import HOT_PLANS, READ_PLANS
from pulse_server.database.statements import statements
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import FILES

SQL = {name: text for file in FILES for name, text in statements(file).items()}
WORKFLOW = "0190f3a2-7b1c-7000-9000-000000000001"
_TABLES = ("jobs", "completed_jobs", "workflows", "workflow_jobs", "workflow_edges", "workflow_notices")
# Rows of sequential scans and entries of index scans, those of functions included.
_SEEN = """
SELECT COALESCE(sum(pg_stat_get_xact_tuples_returned(oid)), 0)::bigint
FROM pg_class WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i')
"""
_OF_PULSE = "relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i', 'p', 'I')"


def definition(jobs: int) -> str:
    """first, then parts that wait for it, then last, which waits for all parts."""
    usual = {"topic": "email", "payload": "e30=", "max_attempts": 5}
    parts = [{"name": f"part-{number}", "after": ["1"], **usual} for number in range(2, jobs)]
    last = {"name": "last", "after": [str(number) for number in range(2, jobs)], **usual}
    return json.dumps([{"name": "first", **usual}, *parts, last])


async def fill(connection: Connection, jobs: int) -> None:
    """Store the workflow, among others that have ended."""
    await connection.execute(
        "INSERT INTO pulse.workflows (id, name, digest, jobs, edges, unfinished, succeeded, finished_at) "
        "SELECT gen_random_uuid(), 'other', 'd', 1, 0, 0, 1, now() FROM generate_series(1, $1::int)",
        jobs,
    )
    await connection.fetchrow(
        "SELECT * FROM pulse.store_workflow_v1($1, 'large', 'd', NULL, $2)", WORKFLOW, definition(jobs)
    )


async def empty(connection: Connection) -> None:
    for table in _TABLES:
        await connection.execute(f"DELETE FROM pulse.{table}")


async def analyze(connection: Connection) -> None:
    for table in _TABLES:
        await connection.execute(f"VACUUM ANALYZE pulse.{table}")


async def forget(connection: Connection) -> None:
    await connection.execute(
        f"DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE {_OF_PULSE})"
    )


async def fresh(connection: Connection, jobs: int) -> None:
    await fill(connection, jobs)
    await analyze(connection)


async def emptied(connection: Connection, jobs: int) -> None:
    """As ANALYZE leaves them at a moment when the tables have pages, and no row."""
    await fill(connection, jobs)
    await forget(connection)
    await connection.execute(
        "UPDATE pg_class SET reltuples = 0, relpages = GREATEST(1, pg_relation_size(oid) / 8192) "
        f"WHERE {_OF_PULSE}"
    )


async def never(connection: Connection, jobs: int) -> None:
    await fill(connection, jobs)
    await forget(connection)
    await connection.execute(f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE {_OF_PULSE}")


async def tiny(connection: Connection, jobs: int) -> None:
    await fill(connection, 10)
    await analyze(connection)
    await empty(connection)
    await fill(connection, jobs)


async def huge(connection: Connection, jobs: int) -> None:
    await fill(connection, jobs)
    await analyze(connection)
    await empty(connection)
    for table in _TABLES:
        await connection.execute(f"VACUUM pulse.{table}")
    await fill(connection, jobs)


STATES: dict[str, Callable[[Connection, int], Awaitable[None]]] = {
    state.__name__: state for state in (fresh, emptied, never, tiny, huge)
}


@asynccontextmanager
async def rolled_back(connection: Connection, *, reads: bool = False) -> AsyncIterator[None]:
    """A transaction with the settings of our sessions, which leaves nothing behind."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        for name, value in (READ_PLANS if reads else HOT_PLANS).items():
            await connection.execute(f"SET LOCAL {name} = '{value}'")
        # A walk for each job fails soon, and not after minutes.
        await connection.execute("SET LOCAL statement_timeout = '20s'")
        yield
    finally:
        await transaction.rollback()


async def entries_read(connection: Connection, statement: str, *arguments: Any) -> int:
    """Run the statement. Returns how many entries of tables and indexes the transaction read for it."""
    before = await connection.fetchval(_SEEN)
    await connection.fetch(SQL.get(statement, statement), *arguments)
    after = await connection.fetchval(_SEEN)
    return int(after - before)


# Has the plans of all statements logged to the client, those of functions included.
LOG_PLANS = """
LOAD 'auto_explain';
SET LOCAL auto_explain.log_min_duration = 0;
SET LOCAL auto_explain.log_nested_statements = on;
SET LOCAL auto_explain.log_analyze = on;
SET LOCAL auto_explain.log_timing = off;
SET LOCAL auto_explain.log_format = json;
SET LOCAL auto_explain.log_level = notice;
SET LOCAL client_min_messages = notice;
"""


def logged_plan(message: str) -> list[Any]:
    """The plan in a message of auto_explain; none in other messages."""
    _, mark, plan = message.partition("plan:")
    return [json.loads(plan)["Plan"]] if mark else []


def rows_seen(plan: Any) -> int:
    """The most rows that one node of the plan has looked at."""
    removed = ("Rows Removed by Filter", "Rows Removed by Join Filter")
    own = (plan["Actual Rows"] + sum(plan.get(name, 0) for name in removed)) * plan["Actual Loops"]
    return max([round(own), *(rows_seen(part) for part in plan.get("Plans", ()))])
