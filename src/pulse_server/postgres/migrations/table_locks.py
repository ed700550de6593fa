"""Takes the locks of a migration before its first statement.

A file that builds an index and then drops another would first take a weaker lock and then ask for a
stronger one. A claim that holds one lock and waits for the other would deadlock with it.

The waits are shorter than those of statements of servers: in a conflict the migration gives up, and not
a server's statement. Retries alone would let Postgres choose the victim. docs/figures.md#migrations
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from pulse_server.postgres.connector import Session

# Below STATEMENT_TIMEOUT: other sessions queue behind a waiting schema change, and must not fail
# because of it. They get through in the pauses.
MIGRATION_LOCK_TIMEOUT = timedelta(seconds=2)
# For every table after the first, below Postgres's deadlock_timeout (1 s): in a deadlock the
# migration gives up, not the call of a worker or a producer. The first wait is longer: past
# deadlock_timeout Postgres cancels an autovacuum that holds the table.
MIGRATION_FURTHER_LOCK_TIMEOUT = timedelta(milliseconds=500)

_COMMENT = re.compile(r"--[^\n]*")
_NAME = re.compile(r"\bpulse\.(\w+)")
# Existing tables, by their own name or the name of an index. They are locked in the order of other
# statements: a claim locks jobs before the switches, and read_gate locks dispatch_control before
# barred_topics.
_EXISTING = """
SELECT DISTINCT class.relname::text AS name,
    array_position(ARRAY['jobs', 'dispatch_control'], class.relname::text) AS place
FROM pg_catalog.pg_class AS named
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = named.relnamespace
LEFT JOIN pg_catalog.pg_index AS index ON index.indexrelid = named.oid
JOIN pg_catalog.pg_class AS class ON class.oid = COALESCE(index.indrelid, named.oid)
WHERE namespace.nspname = 'pulse' AND named.relname = ANY($1::text[]) AND class.relkind IN ('r', 'p')
ORDER BY place, name
"""


def named_relations(sql: str) -> list[str]:
    """The names in schema pulse that the statements use: tables, indexes and functions, existing or
    not."""
    return sorted(set(_NAME.findall(_COMMENT.sub("", sql))))


async def lock_tables(connection: Session, sql: str) -> None:
    """Lock every table that the statements touch, until the end of the transaction.

    LockNotAvailableError if one is not free in time: end the transaction and try again after a pause.
    """
    tables = [row["name"] for row in await connection.fetch(_EXISTING, named_relations(sql))]
    await _lock(connection, tables[:1], MIGRATION_LOCK_TIMEOUT)
    await _lock(connection, tables[1:], MIGRATION_FURTHER_LOCK_TIMEOUT)
    await _set_lock_timeout(connection, MIGRATION_LOCK_TIMEOUT)


async def _lock(connection: Session, tables: Sequence[str], timeout: timedelta) -> None:
    if tables:
        await _set_lock_timeout(connection, timeout)
        listed = ", ".join(f'pulse."{table}"' for table in tables)
        await connection.execute(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE")


async def _set_lock_timeout(connection: Session, timeout: timedelta) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = {int(timeout.total_seconds() * 1000)}")
