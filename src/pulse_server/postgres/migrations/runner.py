"""Brings the schema up to date, also when several servers start at the same time.

Migrations are applied in the order of their numbers. Each is applied once, in a separate
transaction, and recorded with its checksum. Then missing and changed functions are installed.
Servers that start together take turns on an advisory lock, because an empty database has no row to
lock. They poll for it: a session that waits inside pg_advisory_lock holds a snapshot, and CREATE INDEX
CONCURRENTLY would wait for that snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

from pulse_server.base.errors import Unavailable
from pulse_server.postgres.connector import Connector, Session, make_own, own_transaction
from pulse_server.postgres.migrations import schema
from pulse_server.postgres.migrations.blockers import Blockers
from pulse_server.postgres.migrations.functions import (
    Function,
    install_functions,
    known_functions,
    outdated_functions,
)
from pulse_server.postgres.migrations.schema import Migration, SchemaMismatch
from pulse_server.postgres.migrations.table_locks import lock_tables, named_relations
from pulse_server.postgres.privileges import Purpose, require_rights
from pulse_server.postgres.statements import statements

MIGRATION_LOCK_PAUSE = timedelta(seconds=1)
MIGRATION_LOCK_TRIES = 10
# Another server may be migrating, with a file that takes long.
MIGRATION_TURN = timedelta(minutes=5)
# An index over a very large table takes hours; a database that froze must not hold the command forever.
MIGRATION_TIMEOUT = timedelta(hours=6)

_SQL = statements("migrations.sql")

log = logging.getLogger(__name__)

_LOCK_KEY = 0x70756C7365  # "pulse"
_LOCK_POLL = timedelta(milliseconds=100)
# First line of a file that cannot run inside a transaction, such as CREATE INDEX CONCURRENTLY.
_WITHOUT_TRANSACTION = "-- pulse: no transaction"

_BOOKKEEPING = """
CREATE TABLE IF NOT EXISTS pulse.schema_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


async def apply_migrations(
    dsn: str, migrations: Sequence[Migration] | None = None, functions: Sequence[Function] = ()
) -> list[str]:
    """Apply the missing migrations and functions: this server's, or the given ones.

    Returns the names of the migrations that this call applied, then "functions" if it installed some.
    """
    if migrations is None:
        migrations, functions = schema.known_migrations(), known_functions()
    connector = schema.migration_connector(dsn)
    async with schema.opened(connector) as connection:
        if await _is_pooled(connection):
            missing = await schema.missing_migrations(connection, migrations)
            _refuse_pooler(_names(missing, await outdated_functions(connection, functions)))
            return []
        await make_own(connection)
        missing = await schema.missing_migrations(connection, migrations)
        outdated = await outdated_functions(connection, functions)
        if not missing and not outdated:
            return []  # and require no right that only a change needs
        touched = named_relations("\n".join(migration.sql for migration in missing))
        touched += [function.name for function in outdated]
        await require_rights(connection, Purpose.MIGRATE, touched)
        async with _turn(connection, _names(missing, outdated)):
            await _open_the_books(connection)
            missing = await schema.missing_migrations(connection, migrations)
            for migration in missing:
                await _apply(connector, connection, migration)
                log.info("migration_applied", extra={"migration": migration.name})
            outdated = await outdated_functions(connection, functions)
            if outdated:
                await install_functions(connection, outdated)
                log.info("functions_installed", extra={"functions": [function.name for function in outdated]})
    return _names(missing, outdated)


def _names(migrations: Sequence[Migration], functions: Sequence[Function]) -> list[str]:
    return [migration.name for migration in migrations] + (["functions"] if functions else [])


async def _open_the_books(connection: Session) -> None:
    # IF NOT EXISTS would ask for CREATE on the database even where a DBA has made the schema.
    if not await connection.fetchval("SELECT to_regnamespace('pulse') IS NOT NULL"):
        await connection.execute("CREATE SCHEMA pulse")
    await connection.execute(_BOOKKEEPING)


def _refuse_pooler(missing: Sequence[str]) -> None:
    if missing:
        raise SchemaMismatch(
            f"{', '.join(missing)} must be applied, and DB_HOST leads to a "
            "connection pooler, where no session is one's own for the length of a migration. Run "
            "`pulsed migrate` with DB_HOST pointing at the database itself."
        )


async def _apply(connector: Connector, connection: Session, migration: Migration) -> None:
    if migration.sql.startswith(_WITHOUT_TRANSACTION):
        # No session queues behind the lock of this file, and giving up would leave half an index.
        await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT.total_seconds())
        await _record(connection, migration)
        return
    blockers = Blockers(connector, connection.get_server_pid())
    for _ in range(MIGRATION_LOCK_TRIES):
        try:
            async with blockers.watched(), connection.transaction():
                await lock_tables(connection, migration.sql)
                await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT.total_seconds())
                await _record(connection, migration)
            return
        except asyncpg.DependentObjectsStillExistError as error:
            raise SchemaMismatch(str(error)) from error  # in the words of the migration
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            log.info("migration_waits", extra={"migration": migration.name, "blocked_by": blockers.seen})
            await asyncio.sleep(MIGRATION_LOCK_PAUSE.total_seconds())
    raise Unavailable(
        f"{migration.name} could not be applied: another transaction holds a lock that it needs"
        f"{f' ({blockers.seen})' if blockers.seen else ''}. End that transaction, then migrate again."
    )


async def _record(connection: Session, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO pulse.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )


async def _is_pooled(connection: Session) -> bool:
    """Whether a pooler is in between: the greeting and the session have different process ids."""
    async with own_transaction(connection):
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


@asynccontextmanager
async def _turn(connection: Session, names: Sequence[str]) -> AsyncIterator[None]:
    """Hold the migration lock. It belongs to the session and ends with it."""
    patience = MIGRATION_TURN
    began = asyncio.get_running_loop().time()
    logged = ""
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
        waited = asyncio.get_running_loop().time() - began
        if waited > MIGRATION_LOCK_PAUSE.total_seconds() or waited > patience.total_seconds():
            holders = await connection.fetchval(_SQL["holders_of_turn"], _LOCK_KEY) or ""
            if holders != logged:
                log.info("migration_waits", extra={"migration": ", ".join(names), "blocked_by": holders})
                logged = holders
            if waited > patience.total_seconds():
                raise Unavailable(_no_turn(patience, holders))
        await asyncio.sleep(_LOCK_POLL.total_seconds())
    yield
    await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK_KEY)


def _no_turn(patience: timedelta, holders: str) -> str:
    minutes = f"{patience.total_seconds() / 60:.0f} minutes"
    if not holders:
        return f"The lock of migrations was not free for {minutes}. Nothing was changed. Try again."
    return (
        f"The lock of migrations was not free for {minutes}. It is held by {holders}. Nothing was changed. "
        "If this is a pulsed that migrates, look at its log. If it is not, end it with pg_terminate_backend, "
        "and migrate again."
    )


if os.environ.get("PULSE_FAILPOINTS"):
    # Not as a decorator: importing pulse brings gRPC, which `pulsed migrate` and a supervisor do
    # without.
    from pulse import failpoints

    _record = failpoints.before("migration.recording", Unavailable)(_record)
    _apply = failpoints.before("migration.applying", Unavailable)(_apply)
    _apply = failpoints.after("migration.applied", Unavailable)(_apply)
