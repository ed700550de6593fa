"""Large tables of jobs, made in a moment, and the statistics that the planner has of them."""

from __future__ import annotations

import asyncio

from tests.fakes.time_machines import check_running_jobs
from tests.postgres.sessions import Connection

TOPICS = 5
BACKLOG = 200_000  # half of them ready, half of them delayed and of a higher priority
RUNNING = 2_000  # half of them lapsed
FINISHED = 200_000
DEAD = 2_000
GROUPS = 7  # of dead letters, in each topic

_COLUMNS = """
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, started_at, finished_at, priority, attempts, max_attempts,
     queued, delivered, status, topic, payload, locked_by, finished_by, error_group, ended_as)
"""
_TABLES = "'pulse.jobs'::regclass, 'pulse.lease_checks'::regclass"
# An id that is made in order, as UUIDv7 are.
_ID = "('0190f3a2-7b1c-7000-{kind:04}-' || lpad(to_hex(n), 12, '0'))::uuid"


async def add_backlog(connection: Connection, count: int = BACKLOG) -> None:
    await connection.execute(
        f"""{_COLUMNS}
        SELECT {_ID.format(kind=8001)}, now() - interval '1 day' + n * interval '1 ms',
               now() + (n % 2) * interval '1 day', NULL, NULL, NULL, (n % 2) * 10 + n % 3, 0, 5,
               n % 2 = 0, false, 'PENDING', 'topic-' || (n / 2) % {TOPICS}, '{{}}', NULL, NULL, '', NULL
        FROM generate_series(1, {count}) AS n"""
    )


async def add_due(connection: Connection, count: int = RUNNING) -> None:
    """Failed jobs whose wait is over, and that are not promoted yet."""
    await connection.execute(
        f"""{_COLUMNS}
        SELECT {_ID.format(kind=8002)}, now(), now() - n * interval '1 ms', NULL, now(), NULL, 0, 1, 5,
               false, true, 'RETRYING', 'topic-' || n % {TOPICS}, '{{}}', NULL, NULL, '', NULL
        FROM generate_series(1, {count}) AS n"""
    )


async def add_running(connection: Connection, count: int = RUNNING) -> None:
    await connection.execute(
        f"""{_COLUMNS}
        SELECT {_ID.format(kind=8003)}, now(), now(), now() + (n % 2 * 2 - 1) * interval '1 hour', now(),
               NULL, 0, 1, 5, true, true, 'RUNNING', 'topic-' || n % {TOPICS}, '{{}}', 'worker-' || n % 10,
               NULL, '', NULL
        FROM generate_series(1, {count}) AS n"""
    )
    await check_running_jobs(connection)


async def add_finished(connection: Connection, count: int = FINISHED) -> None:
    await connection.execute(
        f"""{_COLUMNS}
        SELECT {_ID.format(kind=8004)}, now() - interval '2 days' + n * interval '1 ms', now(), NULL, now(),
               now(), 0, 1, 5, false, true, 'COMPLETED', 'topic-' || n % {TOPICS}, '{{}}', NULL, 'worker-1',
               '', NULL
        FROM generate_series(1, {count}) AS n"""
    )


async def add_dead_letters(connection: Connection, count: int = DEAD) -> None:
    await connection.execute(
        f"""{_COLUMNS}
        SELECT {_ID.format(kind=8005)}, now() - interval '1 day' + n * interval '1 ms', now(), NULL, now(),
               now(), 0, 5, 5, false, true, 'DEAD_LETTERED', 'topic-' || n % {TOPICS}, '{{}}', NULL,
               'worker-1', 'group-' || n % {GROUPS}, 'DEAD_LETTERED'
        FROM generate_series(1, {count}) AS n"""
    )


def dead_letter_ids(count: int) -> list[str]:
    return [f"0190f3a2-7b1c-7000-8005-{number:012x}" for number in range(1, count + 1)]


async def forget_statistics(connection: Connection) -> None:
    """Leave the planner as it is before the first ANALYZE."""
    await connection.execute(f"DELETE FROM pg_statistic WHERE starelid IN ({_TABLES})")
    unknown = -1 if connection.get_server_version().major >= 14 else 0
    await connection.execute(
        f"UPDATE pg_class SET reltuples = {unknown}, relpages = 0 WHERE oid IN ({_TABLES})"
    )


async def gather_statistics(connection: Connection) -> None:
    await connection.execute("ANALYZE pulse.jobs, pulse.lease_checks")


async def make_all_visible(connection: Connection) -> None:
    """Vacuum until an index alone can answer for every row.

    Once may not do: a snapshot that autovacuum happens to hold here keeps back what was added last.
    """
    # VACUUM takes no row for visible to all whose commit is still on its way to the disk.
    await connection.execute("SET synchronous_commit = on")
    async with asyncio.timeout(60):
        while True:
            await connection.execute("VACUUM (INDEX_CLEANUP ON) pulse.jobs")
            is_done = await connection.fetchval(
                "SELECT relallvisible = relpages FROM pg_class WHERE oid = 'pulse.jobs'::regclass"
            )
            if is_done:
                return
