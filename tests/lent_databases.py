"""Databases that tests take turns in: to empty one takes a few milliseconds, to create one up to 300."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg

from tests.postgres_cluster import Databases

# Deleted rows stay in the file, as no vacuum passes by. A table that has grown past this is not used again.
_MOST_BYTES = 512 * 1024

# Every row of the catalogue that tells of something made here, by the transaction that wrote it: whatever
# changes the schema, its rights or its statistics leaves another answer.
_CATALOGUE = """
SELECT md5(string_agg(entry, ' ' ORDER BY entry)) FROM (
    SELECT concat_ws(':', 'class', oid, xmin, relpages, reltuples) FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT concat_ws(':', 'attribute', attrelid, attnum, xmin) FROM pg_attribute
    WHERE attrelid >= 16384
    UNION ALL SELECT concat_ws(':', 'index', indexrelid, xmin) FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(':', 'constraint', oid, xmin) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws(':', 'default', oid, xmin) FROM pg_attrdef
    UNION ALL SELECT concat_ws(':', 'trigger', oid, xmin) FROM pg_trigger
    UNION ALL SELECT concat_ws(':', 'rule', oid, xmin) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT concat_ws(':', 'function', oid, xmin) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws(':', 'type', oid, xmin) FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT concat_ws(':', 'namespace', oid, xmin) FROM pg_namespace
    UNION ALL SELECT concat_ws(':', 'statistic', starelid, staattnum, xmin) FROM pg_statistic
    WHERE starelid >= 16384
    UNION ALL SELECT concat_ws(':', 'setting', setrole, setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(':', 'database', xmin) FROM pg_database WHERE datname = current_database()
) AS entries (entry)
"""
_TABLES = "FROM pg_class WHERE relnamespace = 'pulse'::regnamespace AND relkind = 'r'"


@dataclass(frozen=True)
class _Lent:
    dsn: str
    empty: str  # the statements that delete what tests add
    read: str  # the query for the rows that the migrations wrote
    original: list[str]  # what the catalogue and that query answered before anybody had it


class LentDatabases:
    """Lends databases with the schema in place and without a job. What a test leaves behind is deleted; a
    database that cannot be made as it was is dropped."""

    def __init__(self, databases: Databases, template: str) -> None:
        self._databases = databases
        self._template = template
        self._free: list[_Lent] = []

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend a database for the length of a block, which gets its DSN."""
        lent = self._free.pop() if self._free else self._create()
        is_as_it_was = False
        try:
            yield lent.dsn
            is_as_it_was = self._is_restored(lent)
        finally:
            if is_as_it_was:
                self._free.append(lent)
            else:
                self._databases.drop(lent.dsn)

    def close(self) -> None:
        """Drop those that nobody has."""
        while self._free:
            self._databases.drop(self._free.pop().dsn)

    def _create(self) -> _Lent:
        dsn = self._databases.create(self._template)
        return self._databases.run(_known, dsn)

    def _is_restored(self, lent: _Lent) -> bool:
        self._databases.disconnect_all(lent.dsn)

        async def restore(dsn: str) -> bool:
            connection = await asyncpg.connect(dsn, timeout=30, command_timeout=60)
            try:
                await connection.execute(lent.empty)
                if await connection.fetchval(f"SELECT max(pg_relation_size(oid)) {_TABLES}") > _MOST_BYTES:
                    return False
                return await _answers(connection, lent.read) == lent.original
            finally:
                await connection.close()

        try:
            return self._databases.run(restore, lent.dsn)
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            return False


async def _known(dsn: str) -> _Lent:
    connection = await asyncpg.connect(dsn, timeout=30, command_timeout=60)
    try:
        tables = [row[0] for row in await connection.fetch(f"SELECT oid::regclass::text {_TABLES}")]
        written = [table for table in tables if await connection.fetchval(f"SELECT EXISTS (TABLE {table})")]
        empty = ";".join(f"DELETE FROM {table}" for table in tables if table not in written)
        rows = " UNION ALL ".join(f"SELECT '{table}' || {table}::text FROM {table}" for table in written)
        read = f"SELECT string_agg(line, ' ' ORDER BY line) FROM ({rows}) AS lines (line)"
        return _Lent(dsn, empty, read, await _answers(connection, read))
    finally:
        await connection.close()


async def _answers(connection: asyncpg.Connection[asyncpg.Record], read: str) -> list[str]:
    return [await connection.fetchval(_CATALOGUE), await connection.fetchval(read)]
