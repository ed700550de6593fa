"""Brings the schema up to date, whoever starts at the same time.

Each file is applied once, in the order of its number, in a transaction of its own, and recorded with its
checksum. Servers that start together take turns on an advisory lock; they poll for it, since a session that
waits inside pg_advisory_lock holds a snapshot that CREATE INDEX CONCURRENTLY would wait for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources

import asyncpg

from pulse_server import tuning
from pulse_server.domain.errors import PulseError, Unavailable
from pulse_server.postgres.connector import Connector, Session
from pulse_server.postgres.failures import translated
from pulse_server.postgres.migrations.blockers import Blockers

log = logging.getLogger(__name__)

OLDEST_POSTGRES = 13
_LOCK_KEY = 0x70756C7365  # "pulse"
_LOCK_POLL = timedelta(milliseconds=100)
# First line of a file that cannot run inside a transaction, such as CREATE INDEX CONCURRENTLY.
_WITHOUT_TRANSACTION = "-- pulse: no transaction"

_BOOKKEEPING = """
CREATE SCHEMA IF NOT EXISTS pulse;
CREATE TABLE IF NOT EXISTS pulse.schema_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class SchemaMismatch(PulseError):
    """The schema and this server do not fit together; the sentence says which way and what to do."""


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
    files = resources.files("pulse_server.postgres.migrations").iterdir()
    migrations = [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".sql")
    ]
    return sorted(migrations, key=lambda migration: migration.version)


async def apply_migrations(dsn: str, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing. Returns the names of what this call applied; none if it was up to date."""
    migrations = known_migrations() if migrations is None else migrations
    connector = _connector(dsn)
    async with _connection(connector) as connection:
        if await _is_pooled(connection):
            _refuse_pooler(await _missing(connection, migrations))
            return []
        async with _turn(connection):
            await connection.execute(_BOOKKEEPING)
            missing = await _missing(connection, migrations)
            for migration in missing:
                await _apply(connector, connection, migration)
                log.info("migration_applied", extra={"migration": migration.name})
    return [migration.name for migration in missing]


async def migration_status(dsn: str) -> list[MigrationStatus]:
    """Every migration that is known here or applied there, in order. Changes nothing."""
    async with _connection(_connector(dsn)) as connection:
        return await _status(connection, known_migrations())


async def require_current_schema(dsn: str) -> None:
    """Return if the schema is the one this server was built for; SchemaMismatch with the way out if not."""
    status = await migration_status(dsn)
    _refuse_foreign(status)
    missing = [entry.name for entry in status if entry.applied_at is None]
    if missing:
        raise SchemaMismatch(
            f"The database's schema is behind this server: {', '.join(missing)} not applied. "
            "Run `pulsed migrate`, or start with `pulsed --migrate`."
        )


def _refuse_pooler(missing: Sequence[Migration]) -> None:
    if missing:
        raise SchemaMismatch(
            f"{', '.join(migration.name for migration in missing)} must be applied, and DB_HOST leads to a "
            "connection pooler, where no session is one's own for the length of a migration. Run "
            "`pulsed migrate` with DB_HOST pointing at the database itself."
        )


def _refuse_foreign(status: Sequence[MigrationStatus]) -> None:
    unknown = [entry.name for entry in status if not entry.is_known]
    if unknown:
        raise SchemaMismatch(
            f"The database's schema is newer than this server: it has {', '.join(unknown)}. "
            "Upgrade pulsed before you start it here."
        )
    changed = [entry.name for entry in status if entry.is_changed]
    if changed:
        raise SchemaMismatch(
            f"Migration {', '.join(changed)} was applied with other content than this server's. "
            "Install the release of pulsed that made this schema, or restore the database from it."
        )


async def _missing(connection: Session, migrations: Sequence[Migration]) -> list[Migration]:
    status = await _status(connection, migrations)
    _refuse_foreign(status)
    applied = {entry.version for entry in status if entry.applied_at is not None}
    return [migration for migration in migrations if migration.version not in applied]


async def _status(connection: Session, migrations: Sequence[Migration]) -> list[MigrationStatus]:
    async with connection.transaction():  # a pooler keeps one server for the length of a transaction only
        exists = await connection.fetchval("SELECT to_regclass('pulse.schema_migrations') IS NOT NULL")
        rows = await connection.fetch("SELECT * FROM pulse.schema_migrations") if exists else []
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


async def _apply(connector: Connector, connection: Session, migration: Migration) -> None:
    if migration.sql.startswith(_WITHOUT_TRANSACTION):
        # Nobody queues behind the lock that these take, and one that gave up would leave half an index.
        await connection.execute(migration.sql, timeout=tuning.MIGRATION_TIMEOUT.total_seconds())
        await _record(connection, migration)
        return
    blockers = Blockers(connector, connection.get_server_pid())
    for _ in range(tuning.MIGRATION_LOCK_TRIES):
        try:
            async with blockers.watched(), connection.transaction():
                await connection.execute(
                    f"SET LOCAL lock_timeout = {_milliseconds(tuning.MIGRATION_LOCK_TIMEOUT)}"
                )
                await connection.execute(migration.sql, timeout=tuning.MIGRATION_TIMEOUT.total_seconds())
                await _record(connection, migration)
            return
        except asyncpg.LockNotAvailableError:
            log.info("migration_waits", extra={"migration": migration.name, "blocked_by": blockers.seen})
            await asyncio.sleep(tuning.MIGRATION_LOCK_PAUSE.total_seconds())
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
    """Whether something stands in between: it made up the process id that came with the greeting."""
    async with connection.transaction():
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


def _connector(dsn: str) -> Connector:
    # Whether there is a pooler has yet to be found out, and a statement left prepared in it would be in the
    # way of whoever gets that session next.
    return Connector(dsn, behind_pooler=True)


@asynccontextmanager
async def _connection(connector: Connector) -> AsyncIterator[Session]:
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


@asynccontextmanager
async def _turn(connection: Session) -> AsyncIterator[None]:
    """Hold the migration lock. It belongs to the session: whatever ends that lets go of it."""
    patience = tuning.MIGRATION_TURN
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
        if asyncio.get_running_loop().time() > deadline:
            raise Unavailable(
                f"Another server has been migrating for {patience.total_seconds() / 60:.0f} minutes. "
                "Look at its log."
            )
        await asyncio.sleep(_LOCK_POLL.total_seconds())
    yield
    await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK_KEY)


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)


if os.environ.get("PULSE_FAILPOINTS"):
    # Not as a decorator: to import pulse brings gRPC, which `pulsed migrate` and a supervisor do without.
    from pulse import failpoints

    _record = failpoints.before("migration.recording", Unavailable)(_record)
    _apply = failpoints.before("migration.applying", Unavailable)(_apply)
    _apply = failpoints.after("migration.applied", Unavailable)(_apply)
