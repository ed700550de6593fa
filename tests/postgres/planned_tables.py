"""Tables of different make-up for the tests of plans, and states of what the planner believes about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.postgres import large_tables
from tests.postgres.sessions import Connection

# The jobs that one statement takes.
BATCH = 500

Fill = Callable[[Connection], Awaitable[None]]


async def waiting_after_a_nearly_empty_start(connection: Connection) -> None:
    for add in (large_tables.add_backlog, large_tables.add_due, large_tables.add_running):
        await add(connection, 4)
    await large_tables.gather_statistics(connection)
    await connection.execute("TRUNCATE pulse.jobs, pulse.lease_checks")
    await add_unfinished(connection)


async def waiting_among_many_finished(connection: Connection) -> None:
    await large_tables.add_finished(connection)
    await large_tables.gather_statistics(connection)
    await add_unfinished(connection)


async def add_unfinished(connection: Connection) -> None:
    await large_tables.add_backlog(connection)
    await large_tables.add_due(connection)
    await large_tables.add_running(connection)
    await large_tables.add_dead_letters(connection)
    await connection.execute(
        f"""INSERT INTO pulse.lease_checks (check_at, settled, ids)
            SELECT now(), false, array_agg(id)
            FROM (SELECT id FROM pulse.jobs WHERE locked_by IS NOT NULL LIMIT {BATCH}) AS claimed"""
    )


async def leave_statistics(connection: Connection) -> None:
    """They are of the time before the table filled."""


async def gather_while_empty(connection: Connection) -> None:
    """As an ANALYZE, or a VACUUM that could not truncate, leaves them at a moment without rows: the planner
    expects one row of each table, however large, and one page of each of its indexes."""
    await large_tables.forget_statistics(connection)
    await connection.execute(
        "UPDATE pg_class SET reltuples = 0, relpages = GREATEST(1, pg_relation_size(oid) / 8192) "
        "WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'i')"
    )


TABLES: dict[str, Fill] = {
    "after a nearly empty start": waiting_after_a_nearly_empty_start,
    "among many finished": waiting_among_many_finished,
}
# In this order: each state of knowledge is made from the one before.
STATISTICS: dict[str, Fill] = {
    "stale": leave_statistics,
    "missing": large_tables.forget_statistics,
    "of an empty table": gather_while_empty,
    "fresh": large_tables.gather_statistics,
}
