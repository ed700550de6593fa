"""Databases that tests reuse: to empty one takes a few milliseconds, to create one up to 300."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg

from tests.postgres_cluster import Databases

# Deleted rows stay in the file, as no vacuum runs. A table that has grown past this is not used again.
_MOST_BYTES = 512 * 1024

# Every row of the catalog about objects of this database, with the transaction that wrote it: a change of
# the schema, its privileges or its statistics gives another result.
_CATALOG = """
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
    UNION ALL SELECT concat_ws(':', 'publication', oid, xmin) FROM pg_publication
    UNION ALL SELECT concat_ws(':', 'statistic', starelid, staattnum, xmin) FROM pg_statistic
    WHERE starelid >= 16384
    UNION ALL SELECT concat_ws(':', 'setting', setrole, setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(':', 'database', xmin) FROM pg_database WHERE datname = current_database()
"""
_TABLES = "FROM pg_class WHERE relnamespace = 'pulse'::regnamespace AND relkind = 'r'"
_LARGEST = f"SELECT max(pg_relation_size(oid)) {_TABLES}"


@dataclass(frozen=True)
class _Lent:
    dsn: str
    # Stays open while a test has the database: a session is slow to start, and caches the catalog.
    session: asyncpg.Connection[asyncpg.Record]
    empty: str  # the statements that delete what tests add
    read: str  # the query for the catalog and the rows that the migrations wrote
    original: str  # its result before the first test had the database


class LentDatabases:
    """Lends databases with the schema in place and without a job. Rows that a test leaves are deleted; a
    database that cannot be restored is dropped."""

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
                self._drop(lent)

    def close(self) -> None:
        """Drop the databases that are not lent."""
        while self._free:
            self._drop(self._free.pop())

    def _create(self) -> _Lent:
        return self._databases.run(_known(self._databases.create(self._template)))

    def _drop(self, lent: _Lent) -> None:
        lent.session.terminate()
        self._databases.drop(lent.dsn)

    def _is_restored(self, lent: _Lent) -> bool:
        self._databases.disconnect_all(lent.dsn, but=lent.session)

        async def restore() -> bool:
            await lent.session.execute(lent.empty)
            if await lent.session.fetchval(_LARGEST) > _MOST_BYTES:
                return False
            return bool(await lent.session.fetchval(lent.read) == lent.original)

        try:
            return self._databases.run(restore())
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            return False  # it cannot be emptied, or the test ended the session


async def _known(dsn: str) -> _Lent:
    session = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
    tables = [row[0] for row in await session.fetch(f"SELECT oid::regclass::text {_TABLES}")]
    written = [table for table in tables if await session.fetchval(f"SELECT EXISTS (TABLE {table})")]
    empty = ";".join(f"DELETE FROM {table}" for table in tables if table not in written)
    rows = " UNION ALL ".join(f"SELECT '{table}' || kept::text FROM {table} AS kept" for table in written)
    lines = f"{_CATALOG} UNION ALL {rows}"
    read = f"SELECT md5(string_agg(line, ' ' ORDER BY line COLLATE \"C\")) FROM ({lines}) AS lines (line)"
    return _Lent(dsn, session, empty, read, await session.fetchval(read))
