"""Compares the schema with the server: its migrations and functions, and the applied ones."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError
from pulse_server.postgres.connector import Connector, Session, own_transaction
from pulse_server.postgres.database import Connections
from pulse_server.postgres.failures import translated
from pulse_server.postgres.migrations.functions import known_functions, missing_functions, outdated_functions
from pulse_server.postgres.privileges import Purpose, require_rights
from pulse_server.postgres.statements import Rows, statements

OLDEST_POSTGRES = 13

_SQL = statements("migrations.sql")


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
    entries = resources.files("pulse_server.postgres.migrations").iterdir()
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


async def missing_migrations(connection: Session, migrations: Sequence[Migration]) -> list[Migration]:
    """The pending migrations. SchemaMismatch if the database has migrations that do not fit this
    server."""
    status = await _status(connection, migrations)
    _refuse_foreign(status)
    applied = {entry.version for entry in status if entry.applied_at is not None}
    return [migration for migration in migrations if migration.version not in applied]


async def _status(connection: Session, migrations: Sequence[Migration]) -> list[MigrationStatus]:
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
async def opened(connector: Connector) -> AsyncIterator[Session]:
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
