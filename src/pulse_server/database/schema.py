"""The schema: its functions, its comparison with this server, and its migrations."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.database.connections import Connections
from pulse_server.database.connector import Connector, DatabaseSession, make_own, own_transaction, translated
from pulse_server.database.rights import Purpose, require_rights
from pulse_server.database.statements import Rows, statements, with_fragments

_SQL = statements("database/schema.sql", "database/rights.sql", "database/locks.sql")


# ---------------------------------------------------------------- functions
# The functions of the database: a file each, with the fragments of the statements, in the room of their noun.
#
# Applications call the functions in database/interface/. Their names have no version: a new option is a
# parameter with a default, at the end. Servers and the interface call those in functions/ of
# each room. Their names end with a version. Servers of two versions share the database during a
# rollout. So the text under a name may be improved, but a change of signature or meaning takes the
# next number. The checksum of the file is the function's comment, so that it is dropped with the
# function.


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def known_functions() -> Sequence[Function]:
    rooms = [room for room in resources.files("pulse_server").iterdir() if room.is_dir()]
    functions = [
        Function(file.name.removesuffix(".sql"), with_fragments(file.read_text(encoding="utf-8")))
        for folder in (room.joinpath(name) for room in rooms for name in ("functions", "interface"))
        if folder.is_dir()
        for file in folder.iterdir()
    ]
    return sorted(functions, key=lambda function: function.name)


async def outdated_functions(connection: DatabaseSession, functions: Sequence[Function]) -> list[Function]:
    """The functions that the database lacks, or has with other content."""
    async with own_transaction(connection):
        rows = await connection.fetch(_SQL["list_functions"])
    installed = {row["name"]: row["checksum"] for row in rows}
    return [function for function in functions if installed.get(function.name) != function.checksum]


def missing_functions(rows: Rows) -> list[str]:
    """The functions that this server calls and the rows of list_functions lack.

    Other content is accepted: in a rollout the database may have functions of newer servers under
    these names.
    """
    installed = {row["name"] for row in rows}
    return [function.name for function in known_functions() if function.name not in installed]


async def install_functions(connection: DatabaseSession, functions: Sequence[Function]) -> None:
    """Create or replace the functions, all or none."""
    async with connection.transaction():
        # They call each other, and are created in the order of their names.
        await connection.execute("SET LOCAL check_function_bodies = off")
        for function in functions:
            await _install(connection, function)
        for row in await connection.fetch(_SQL["grants_of_functions"], [entry.name for entry in functions]):
            await connection.execute(row["statement"])


async def _install(connection: DatabaseSession, function: Function) -> None:
    """Create or replace a function. Roles keep their rights to it."""
    try:
        async with connection.transaction():
            await _create(connection, function)
    except asyncpg.AmbiguousFunctionError:
        # It has a new parameter, and would stand beside the function without it.
        grants = await connection.fetch(_SQL["grants_on_function"], function.name)
        await connection.execute(f"DROP FUNCTION pulse.{function.name}")
        await _create(connection, function)
        for row in grants:
            await connection.execute(row["statement"])


async def _create(connection: DatabaseSession, function: Function) -> None:
    await connection.execute(function.sql)
    # Every role may call a new function, unless this is taken away.
    await connection.execute(f"REVOKE EXECUTE ON FUNCTION pulse.{function.name} FROM PUBLIC")
    await connection.execute(f"COMMENT ON FUNCTION pulse.{function.name} IS '{function.checksum}'")


# ---------------------------------------------------------------- schema
# Compares the schema with the server: its migrations and functions, and the applied ones.

OLDEST_POSTGRES = 13


class SchemaMismatch(PulseError):
    """The schema and this server do not fit together. The sentence states which is older and what to do."""


class SchemaBehind(SchemaMismatch):
    """The schema lacks migrations that this server has, and nothing else is wrong with it."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = missing
        super().__init__(
            f"The database's schema is behind this server: {', '.join(missing)} not applied. "
            "Run `pulsed migrate`, or start with `pulsed --migrate`."
        )


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """One migration: known to this server, applied to the database, or both."""

    version: int
    name: str
    applied_at: datetime | None
    is_known: bool
    is_changed: bool


def known_migrations() -> list[Migration]:
    entries = resources.files("pulse_server.database").joinpath("migrations").iterdir()
    migrations = [
        Migration(int(entry.name[:4]), entry.name.removesuffix(".sql"), _sql_of(entry))
        for entry in entries
        if entry.name[:4].isdecimal()
    ]
    return sorted(migrations, key=lambda migration: migration.version)


def _sql_of(entry: Traversable) -> str:
    """The text of a file, or of the files in a folder in the order of their names."""
    files = sorted(entry.iterdir(), key=lambda file: file.name) if entry.is_dir() else [entry]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


async def migration_status(dsn: str) -> list[MigrationStatus]:
    """Every migration that this server has or that is applied, in order. Changes nothing."""
    async with opened(migration_connector(dsn)) as connection:
        return await _status(connection, known_migrations())


async def function_status(dsn: str) -> list[str]:
    """The functions that the database lacks, or has with other content than this server's."""
    async with opened(migration_connector(dsn)) as connection:
        return [function.name for function in await outdated_functions(connection, known_functions())]


async def require_current_schema(dsn: str) -> None:
    """Return if the schema fits this server; else raise SchemaMismatch, which says what to do."""
    async with opened(migration_connector(dsn)) as connection:
        status = await _status(connection, known_migrations())
        _refuse_foreign(status)
        missing = [entry.name for entry in status if entry.applied_at is None]
        if not missing:
            async with own_transaction(connection):
                missing = missing_functions(await connection.fetch(_SQL["list_functions"]))
    if missing:
        raise SchemaBehind(missing)


async def require_usable_schema(connections: Connections) -> None:
    """Return if all migrations and functions of this server are applied; SchemaMismatch if not.

    For a running server, on its own connections. Unlike at the start, a newer schema is accepted:
    in a rollout the migration comes first. The old servers keep working with it, and must not all
    be taken out of service at once.
    """
    ((exists,),) = await connections.fetch("find_migrations", _SQL["find_migrations"])
    rows = await connections.fetch("list_migrations", _SQL["list_migrations"]) if exists else []
    status = [entry for entry in _compared(known_migrations(), rows) if entry.is_known]
    missing = [entry.name for entry in status if entry.applied_at is None]
    if not missing:
        missing = missing_functions(await connections.fetch("list_functions", _SQL["list_functions"]))
    if missing:
        raise SchemaMismatch(f"The database lacks {', '.join(missing)}. Run `pulsed migrate`.")
    _refuse_changed(status)


async def missing_migrations(connection: DatabaseSession, migrations: Sequence[Migration]) -> list[Migration]:
    """The pending migrations. SchemaMismatch if the database has migrations that do not fit this
    server."""
    status = await _status(connection, migrations)
    _refuse_foreign(status)
    applied = {entry.version for entry in status if entry.applied_at is not None}
    return [migration for migration in migrations if migration.version not in applied]


async def _status(connection: DatabaseSession, migrations: Sequence[Migration]) -> list[MigrationStatus]:
    try:
        async with own_transaction(connection):
            exists = await connection.fetchval(_SQL["find_migrations"])
            rows = await connection.fetch(_SQL["list_migrations"]) if exists else []
    except asyncpg.InsufficientPrivilegeError:
        await require_rights(connection, Purpose.LOOK)
        raise
    return _compared(migrations, rows)


def _compared(migrations: Sequence[Migration], rows: Rows) -> list[MigrationStatus]:
    applied = {row["version"]: row for row in rows}
    known = {migration.version: migration for migration in migrations}
    status = []
    for version in sorted(applied.keys() | known.keys()):
        migration, row = known.get(version), applied.get(version)
        status.append(
            MigrationStatus(
                version=version,
                name=migration.name if migration else str(row["name"]) if row else "",
                applied_at=row["applied_at"] if row else None,
                is_known=migration is not None,
                is_changed=bool(migration and row and row["checksum"] != migration.checksum),
            )
        )
    return status


def migration_connector(dsn: str) -> Connector:
    """The connector for reading and applying migrations."""
    # There may be a pooler, and a statement left prepared in its session would conflict with the next
    # client of that session.
    return Connector(dsn, behind_pooler=True)


@asynccontextmanager
async def opened(connector: Connector) -> AsyncIterator[DatabaseSession]:
    """A connection for the length of the block; SchemaMismatch if PostgreSQL is too old."""
    with translated("migrate"):
        connection = await connector.connect(
            settings={"application_name": "pulsed migrate"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            major = connection.get_server_version().major
            if major < OLDEST_POSTGRES:
                raise SchemaMismatch(
                    f"The database is PostgreSQL {major}; pulsed needs {OLDEST_POSTGRES} or newer."
                )
            yield connection
        finally:
            connection.terminate()


def _refuse_foreign(status: Sequence[MigrationStatus]) -> None:
    _refuse_unreleased(status)
    unknown = [entry.name for entry in status if not entry.is_known]
    if unknown:
        raise SchemaMismatch(
            f"The database's schema is newer than this server: it has {', '.join(unknown)}. "
            "Upgrade pulsed before you start it here."
        )
    _refuse_changed(status)


def _refuse_unreleased(status: Sequence[MigrationStatus]) -> None:
    # The first file does not change from the first release on.
    if any(entry.version == 1 and entry.is_changed for entry in status):
        raise SchemaMismatch(
            "The database's schema was made by a build of pulsed from before the first release, and cannot "
            "be upgraded: use a new database, or drop the schema with its jobs (DROP SCHEMA pulse CASCADE)."
        )


def _refuse_changed(status: Sequence[MigrationStatus]) -> None:
    _refuse_unreleased(status)
    changed = [entry.name for entry in status if entry.is_changed]
    if changed:
        raise SchemaMismatch(
            f"Migration {', '.join(changed)} was applied with other content than this server's. "
            "Install the release of pulsed that made this schema, or restore the database from it."
        )


# ---------------------------------------------------------------- table locks
# Takes the locks of a migration before its first statement.
#
# A file that builds an index and then drops another would first take a weaker lock and then ask for a
# stronger one. A claim that holds one lock and waits for the other would deadlock with it.
#
# The waits are shorter than those of statements of servers: in a conflict the migration gives up, and not
# a server's statement. Retries alone would let Postgres choose the victim. docs/figures.md#migrations

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


async def lock_tables(connection: DatabaseSession, sql: str) -> None:
    """Lock every table that the statements touch, until the end of the transaction.

    LockNotAvailableError if one is not free in time: end the transaction and try again after a pause.
    """
    tables = [row["name"] for row in await connection.fetch(_EXISTING, named_relations(sql))]
    await _lock(connection, tables[:1], MIGRATION_LOCK_TIMEOUT)
    await _lock(connection, tables[1:], MIGRATION_FURTHER_LOCK_TIMEOUT)
    await _set_lock_timeout(connection, MIGRATION_LOCK_TIMEOUT)


async def _lock(connection: DatabaseSession, tables: Sequence[str], timeout: timedelta) -> None:
    if tables:
        await _set_lock_timeout(connection, timeout)
        listed = ", ".join(f'pulse."{table}"' for table in tables)
        await connection.execute(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE")


async def _set_lock_timeout(connection: DatabaseSession, timeout: timedelta) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = {int(timeout.total_seconds() * 1000)}")


# ---------------------------------------------------------------- blockers
# Finds the transaction that blocks a migration, while it waits: afterwards it cannot be found.

_POLL = timedelta(milliseconds=200)


class MigrationBlockers:
    """The sessions that were last seen to block the session with this process id."""

    def __init__(self, connector: Connector, pid: int) -> None:
        self._connector = connector
        self._pid = pid
        self.seen = ""

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts. Errors of the watching session are ignored."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self) -> None:
        # Most files are applied at once, and no second session is needed.
        await asyncio.sleep(_POLL.total_seconds())
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await self._connector.connect(
                settings={"application_name": "pulsed migrate"}, command_timeout=tuning.STATEMENT_TIMEOUT
            )
            try:
                await make_own(connection)
                while True:
                    self.seen = await connection.fetchval(_SQL["blockers_of"], self._pid) or self.seen
                    await asyncio.sleep(_POLL.total_seconds())
            finally:
                connection.terminate()


# ---------------------------------------------------------------- runner
# Brings the schema up to date, also when several servers start at the same time.
#
# Migrations are applied in the order of their numbers. Each is applied once, in a separate
# transaction, and recorded with its checksum. Then missing and changed functions are installed.
# Servers that start together take turns on an advisory lock, because an empty database has no row to
# lock. They poll for it: a session that waits inside pg_advisory_lock holds a snapshot, and CREATE INDEX
# CONCURRENTLY would wait for that snapshot.

MIGRATION_LOCK_PAUSE = timedelta(seconds=1)
MIGRATION_LOCK_TRIES = 10
# Another server may be migrating, with a file that takes long.
MIGRATION_TURN = timedelta(minutes=5)
# An index over a very large table takes hours; a database that froze must not hold the command forever.
MIGRATION_TIMEOUT = timedelta(hours=6)

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
        migrations, functions = known_migrations(), known_functions()
    connector = migration_connector(dsn)
    async with opened(connector) as connection:
        if await _is_pooled(connection):
            missing = await missing_migrations(connection, migrations)
            _refuse_pooler(_names(missing, await outdated_functions(connection, functions)))
            return []
        await make_own(connection)
        missing = await missing_migrations(connection, migrations)
        outdated = await outdated_functions(connection, functions)
        if not missing and not outdated:
            return []  # and require no right that only a change needs
        touched = named_relations("\n".join(migration.sql for migration in missing))
        touched += [function.name for function in outdated]
        await require_rights(connection, Purpose.MIGRATE, touched)
        async with _turn(connection, _names(missing, outdated)):
            await _open_the_books(connection)
            missing = await missing_migrations(connection, migrations)
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


async def _open_the_books(connection: DatabaseSession) -> None:
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


async def _apply(connector: Connector, connection: DatabaseSession, migration: Migration) -> None:
    if migration.sql.startswith(_WITHOUT_TRANSACTION):
        # No session queues behind the lock of this file, and giving up would leave half an index.
        await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT.total_seconds())
        await _record(connection, migration)
        return
    blockers = MigrationBlockers(connector, connection.get_server_pid())
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


async def _record(connection: DatabaseSession, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO pulse.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )


async def _is_pooled(connection: DatabaseSession) -> bool:
    """Whether a pooler is in between: the greeting and the session have different process ids."""
    async with own_transaction(connection):
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


@asynccontextmanager
async def _turn(connection: DatabaseSession, names: Sequence[str]) -> AsyncIterator[None]:
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
