"""Opens connections to the host of the database that accepts writes now. docs/figures.md#failover-and-poolers

The driver also tries the hosts of a URL in turn, but under one timeout. A frozen primary uses all of it, and
the promoted standby is never tried. Here each host has its own timeout, and the last host that responded is
tried first.

Sessions have settings of their own, whatever the role, the database and the server set: from their start, or
behind a pooler in each transaction. A pool adds what its statements need (connections.py). Errors of the
driver become errors that a caller can act on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakSet

import asyncpg

from pulse_server.base.errors import ResourceExhausted, Unavailable
from pulse_server.database.urls import BadConnectionString, DatabaseUrl, read_database_url


class HeldUp(Exception):
    """A statement waited too long for a lock of these sessions."""

    def __init__(self, blockers: str) -> None:
        self.blockers = blockers
        super().__init__(blockers)


class TakesNoWrites(ConnectionRefusedError):
    """The host responds, but is a standby or read-only."""


class ReadOnlyRole(TakesNoWrites):
    """The host accepts writes, but not from this role."""

    def __init__(self, role: str) -> None:
        super().__init__(
            f"is read-only for the role {role}. Run "
            f"ALTER ROLE {role} RESET default_transaction_read_only; or connect as another role"
        )


class NoHostTakesWrites(ConnectionError):
    """No host is a primary that responds. The text has a clause per host."""

    def __init__(self, text: str, failures: Sequence[Exception] = ()) -> None:
        super().__init__(text)
        self.failures = failures


_NO_ROOM = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
_READ_ONLY = (TakesNoWrites, NoHostTakesWrites, asyncpg.ReadOnlySQLTransactionError)
_AWAY = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,  # the pool is closing, or the connection died under a statement
    # A session that was terminated while idle: its last message is read after the next statement was sent.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # too many connections; _NO_ROOM is looked at first
    asyncpg.OperatorInterventionError,  # shutting down, starting up, statement canceled
    asyncpg.ReadOnlySQLTransactionError,  # a standby: the primary moved
    asyncpg.TransactionRollbackError,  # deadlock or serialization: met again at the next try
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidPasswordError,
    # The database is closed to connections, or renamed, during maintenance.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InternalServerError,
)


@contextmanager
def translated(statement: str) -> Iterator[None]:
    """Raise Unavailable or ResourceExhausted for failures of the database; let bugs through."""
    try:
        yield
    except _NO_ROOM as error:
        raise ResourceExhausted("The database has no room left. Nothing was changed.") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise Unavailable(
            f"The database role lacks a right ({statement}: {error.args[0] if error.args else ''}). "
            "`pulsed check` names the GRANT that helps."
        ) from error
    except asyncpg.UndefinedTableError as error:
        # Our statements fit the schema that was checked at the start: a table was dropped by hand since.
        raise Unavailable(
            f"The schema of the database is damaged ({statement}: {error.args[0] if error.args else ''}). "
            "Restore what is missing from a backup; `pulsed migrate status` names what was applied."
        ) from error
    except HeldUp as error:
        raise Unavailable(
            f"Another session of the database holds a lock that this needs ({statement}): {error.blockers}. "
            "Nothing was changed. Try again once that transaction has ended; pg_terminate_backend ends it."
        ) from error.__cause__
    except _AWAY as error:
        if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
            raise Unavailable(
                "DB_HOST leads to a pooler that refuses session settings, such as PgBouncer. "
                "Set PULSE_DB_POOLER=on."
            ) from error
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise Unavailable(
                f"Another session of the database holds a lock that this needs ({statement}: "
                f"{type(error).__name__}). Nothing was changed. Try again. "
                "The log of pulsed names the session."
            ) from error
        if isinstance(error, asyncpg.TransactionRollbackError):
            what = "ended the statement because of a conflict with another one"
        else:
            what = "takes no writes" if isinstance(error, _READ_ONLY) else "did not answer"
        raise Unavailable(f"The database {what} ({statement}: {type(error).__name__}). Try again.") from error
    except asyncpg.PostgresError as error:
        # Its detail quotes the whole row, payload and metadata included, and would be logged.
        error.detail = None
        raise


def describe(error: BaseException) -> str:
    """The error as a clause of a sentence."""
    return str(error).strip().rstrip(".") or type(error).__name__


def is_starting(error: Exception) -> bool:
    """Whether a host responds that it starts, recovers or shuts down: it will take connections later."""
    failures = error.failures if isinstance(error, NoHostTakesWrites) else (error,)
    return any(isinstance(failure, asyncpg.CannotConnectNowError) for failure in failures)


_ISOLATION = "default_transaction_isolation"

ALWAYS = {
    # Names of functions, operators and types are looked up here only. In another schema, such as
    # public, another role may have created a function that fits our arguments better. It would run
    # with our rights. Our own names are written as pulse.…
    "search_path": "pg_catalog",
    # Our statements lock rows that may have changed since the snapshot, and decide by the locked
    # version. At a stricter level these statements would fail instead.
    _ISOLATION: "read committed",
    # The pools bound their statements themselves. A migration may take hours.
    "statement_timeout": "0",
    "lock_timeout": "0",
}
# A migration may pause between two statements of its transaction. Elsewhere the role's own value applies: it
# ends the transaction of a pulsed that froze behind a pooler.
FOR_MIGRATIONS = ALWAYS | {"idle_in_transaction_session_timeout": "0"}
# These exist since PostgreSQL 14 and 17; an older server refuses a session that begins with them. A
# session that idles in a pool, or listens, must not be ended for it.
_OF_LATER_VERSIONS = ("idle_session_timeout", "transaction_timeout")
LIFT_LATER_TIMEOUTS = ", ".join(
    f"CASE WHEN pg_catalog.current_setting('{name}', true) <> '0' "
    f"THEN pg_catalog.set_config('{name}', '0', false) END"
    for name in _OF_LATER_VERSIONS
)


def set_for_session(settings: Mapping[str, str]) -> str:
    """The statement that sets these for a session. Not behind a pooler: its next client would get them."""
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())


def begin_with(settings: Mapping[str, str]) -> str:
    """The statement that begins a transaction with these settings, which end with it."""
    listed = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items() if name != _ISOLATION)
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *listed])


def tls_arguments(target: DatabaseUrl) -> dict[str, Any]:
    """The arguments for one connection. Read again for each, so that a renewed certificate is
    used."""
    arguments: dict[str, Any] = {"direct_tls": True} if target.begins_with_tls else {}
    if target.trusts_system:
        arguments["ssl"] = context = ssl.create_default_context()
        context.set_alpn_protocols(["postgresql"])
        if target.certificate is not None:
            certificate = target.certificate
            context.load_cert_chain(certificate.file, certificate.key, lambda: certificate.password)
    return arguments


# ---------------------------------------------------------------- array types
# Registers the array types of the statements with the driver.
#
# The driver knows the built-in types but not their arrays: each session queries its server for them before
# the first statement that has one. This takes about 20 ms for the first statement of a session and 30 ms in
# all, at the start of a server and after a failover. They are the same on every server.

# By element type: its oid in pg_type, and the oid of its array type.
_OIDS = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "date": (1082, 1182),
    "float8": (701, 1022),
    "int4": (23, 1007),
    "int8": (20, 1016),
    "interval": (1186, 1187),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
}


def _as_introspected(element: str, oid: int, array_oid: int) -> dict[str, Any]:
    """The array as the driver's own query returns it."""
    return {
        "oid": array_oid,
        "ns": "pg_catalog",
        "name": f"_{element}",
        "kind": "b",
        "basetype": None,
        "elemtype": oid,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "depth": 0,
        "basetype_name": None,
        "elemtype_name": element,
        "range_subtype_name": None,
    }


TYPES = [_as_introspected(element, *oids) for element, oids in _OIDS.items()]


def register_array_types(session: asyncpg.Connection[asyncpg.Record]) -> None:
    """Save the session its query."""
    # The method is not documented, and nothing depends on it: a driver without it sends its query.
    with suppress(AttributeError, KeyError, TypeError):
        session.get_settings().register_data_types(TYPES)


# ---------------------------------------------------------------- hosts
# Reads the hosts of a database URL, so that each host can be tried separately.

_DEFAULT_PORT = "5432"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the database: a name or address, or the directory of a unix socket."""

    name: str
    port: int

    def __str__(self) -> str:
        return self.name if self.name.startswith("/") else f"{self.name}:{self.port}"


def hosts_in(dsn: str) -> tuple[Host, ...]:
    """The hosts of the URL in order; empty if it names none. ValueError if it cannot be read."""
    parts = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    ports = query.get("port", "")
    if listed := parts.netloc.partition("@")[2] if "@" in parts.netloc else parts.netloc:
        names = [unquote(entry) for entry in listed.split(",")]
    else:
        names = query["host"].split(",") if "host" in query else []
    split = [_split(name) for name in names]
    defaults = (ports or os.environ.get("PGPORT", "") or _DEFAULT_PORT).split(",")
    if len(defaults) == 1:
        defaults *= len(split)
    if len(defaults) < len(split):
        raise ValueError("there are fewer ports than hosts")
    return tuple(
        Host(name, int(port or default)) for (name, port), default in zip(split, defaults, strict=False)
    )


def chosen_session(dsn: str) -> str | None:
    """Which hosts to accept (`target_session_attrs`) by the URL or the environment, if set."""
    named = parse_qs(urlsplit(dsn).query).get("target_session_attrs", [""])[-1]
    return named or os.environ.get("PGTARGETSESSIONATTRS") or None


def _split(entry: str) -> tuple[str, str]:
    if entry.startswith("/"):
        return entry, ""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = entry.partition(":")
    return name, port


# ---------------------------------------------------------------- connector

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # generic for the type checker only

CONNECT_TIMEOUT = timedelta(seconds=5)
# For each host, if the URL names several: a frozen primary must leave time to try the next one.
HOST_TIMEOUT = timedelta(seconds=2)

log = logging.getLogger(__name__)

_IS_WRITABLE = (
    "NOT pg_catalog.pg_is_in_recovery() "
    "AND pg_catalog.current_setting('default_transaction_read_only') = 'off'"
)
# The role, if only the role is read-only. A read-only database or server is so on purpose: it is
# being moved, or its disk is full.
_READ_ONLY_ROLE = (
    "SELECT pg_catalog.quote_ident(CURRENT_USER) FROM pg_catalog.pg_settings "
    "WHERE name = 'default_transaction_read_only' AND source IN ('user', 'database user') "
    "AND NOT pg_catalog.pg_is_in_recovery()"
)
# Begins a transaction in a session that may be a pooler's.
_BEGUN_WITH = "SET LOCAL search_path = pg_catalog; SET LOCAL statement_timeout = 0"
# Log refusals at most this often: a limit that is too low refuses many connections a second.
_REFUSALS_TOLD = timedelta(minutes=1)
# How many statements the driver keeps prepared: its default, or none. Behind a pooler, a statement
# may run in another session than the one that prepared it.
_KEPT_PREPARED = 100
_NONE_PREPARED = 0


class DatabaseSession(_Connection):
    """A connection, its host, and how often the database had moved before it was opened."""

    __slots__ = ("host", "moves")

    host: Host | None
    moves: int


class Connector:
    """Where the database is. All users of a connector follow the primary together."""

    def __init__(
        self,
        dsn: str,
        *,
        behind_pooler: bool = False,
        needed: int | None = None,
        search_path: str | None = None,
    ) -> None:
        """`search_path`: of the testing kit, whose functions of time come before those of Postgres."""
        self.dsn = dsn
        self.always = ALWAYS if search_path is None else ALWAYS | {"search_path": search_path}
        """The settings of each session."""
        self._needed = needed
        self._told_of_refusal: float | None = None
        self._target = target = _read(dsn)
        self.behind_pooler = behind_pooler
        # Hosts in the order to try. Empty for a single host, which the driver handles alone.
        self._hosts = _several_hosts(target.url)
        self._last: Host | None = None
        self._moves = 0
        self._sessions: WeakSet[DatabaseSession] = WeakSet()
        # By default a host must accept writes, unless the URL asks for others. This applies to a
        # single host too: a server that can store nothing must not report itself ready.
        self._must_be_writable = _names_no_session(target.url)

    @property
    def connect_timeout(self) -> timedelta | None:
        """How long each host may take to accept a connection, if the URL sets it."""
        return self._target.connect_timeout

    @property
    def has_alternatives(self) -> bool:
        """Whether there is another host to try."""
        return bool(self._hosts)

    async def connect(
        self,
        *,
        timeout: timedelta | None = None,
        settings: dict[str, str] | None = None,
        command_timeout: timedelta | None = None,
    ) -> DatabaseSession:
        """Open a connection to a host that accepts writes. `timeout` is for all hosts together."""
        timeout = timeout or self._patience
        options: dict[str, Any] = {
            # A pooler refuses unknown parameters: there each transaction sets its own.
            "server_settings": settings if self.behind_pooler else self.always | (settings or {}),
            "command_timeout": command_timeout.total_seconds() if command_timeout else None,
            "statement_cache_size": _NONE_PREPARED if self.behind_pooler else _KEPT_PREPARED,
        }
        try:
            return await self._connect(timeout, options)
        except asyncpg.TooManyConnectionsError as error:
            if self._needed is not None:  # else the one command that connects reports it
                self._log_refusal(error)
            raise

    async def _connect(self, timeout: timedelta, options: dict[str, Any]) -> DatabaseSession:
        if not self._hosts:
            return self._stamped(await self._open_writable(timeout, options), None)
        while True:
            was_last = self._last
            session, host = await self._reach(timeout, options)
            if self._last in (was_last, host):
                self._arrive(host)
                return self._stamped(session, host)
            # Another connection has found the database on another host; this one may be frozen.
            session.terminate()

    def _log_refusal(self, error: asyncpg.TooManyConnectionsError) -> None:
        now = asyncio.get_running_loop().time()
        if self._told_of_refusal is not None and now - self._told_of_refusal < _REFUSALS_TOLD.total_seconds():
            return
        self._told_of_refusal = now
        log.warning(
            "connection_refused",
            extra={
                "reason": describe(error),
                "needed_by_each_process": self._needed,
                "hint": "Raise the CONNECTION LIMIT of the role or the database, or max_connections: "
                "`pulsed check` names the one that is too low.",
            },
        )

    def is_current(self, connection: DatabaseSession) -> bool:
        """Whether the connection leads to the last known host of the database."""
        return connection.moves == self._moves

    def leave(self, connection: DatabaseSession) -> None:
        """Stop using connections as old as this one: their host is frozen, or no longer primary."""
        if not self.is_current(connection):
            return
        self._moves += 1
        host = connection.host
        if host is not None:
            self._put_last(host)
        log.warning("database_left", extra={"host": str(host) if host else None})

    @property
    def _patience(self) -> timedelta:
        """The timeout for all hosts together."""
        if self.connect_timeout is None:
            return CONNECT_TIMEOUT
        return self.connect_timeout * max(1, len(self._hosts))

    async def _reach(self, timeout: timedelta, options: dict[str, Any]) -> tuple[DatabaseSession, Host]:
        """Open a connection to the first host that accepts writes, in the current order."""
        hosts = list(self._hosts)
        for_each = min(self.connect_timeout or HOST_TIMEOUT, timeout / len(hosts))
        failures: list[Exception] = []
        for host in hosts:
            try:
                session = await self._open_writable(
                    for_each, options | {"host": host.name, "port": host.port}
                )
            except (OSError, asyncpg.PostgresError, asyncpg.TargetServerAttributeNotMatched) as error:
                failures.append(error)
                self._put_last(host)
            else:
                return session, host
        raise _summary(hosts, failures)

    def _arrive(self, host: Host) -> None:
        if self._last not in (None, host):
            # A connection to the old host must not be used further: that host may wake up and
            # accept writes. Nor may a statement wait for it: a heartbeat would come too late here.
            self._moves += 1
            for session in list(self._sessions):
                session.terminate()
            log.warning("database_moved", extra={"host": str(host), "was": str(self._last)})
        self._last = host
        self._hosts.remove(host)
        self._hosts.insert(0, host)

    def _put_last(self, host: Host) -> None:
        self._hosts.remove(host)
        self._hosts.append(host)

    def _stamped(self, session: DatabaseSession, host: Host | None) -> DatabaseSession:
        session.host = host
        session.moves = self._moves
        self._sessions.add(session)
        return session

    async def _open_writable(self, timeout: timedelta, options: dict[str, Any]) -> DatabaseSession:
        async with asyncio.timeout(timeout.total_seconds()):
            session = await self._open(timeout, options)
            try:
                is_writable = await self._is_writable(session)
                if self._must_be_writable and not is_writable:
                    raise await _why_not_writable(session)
            except BaseException:
                session.terminate()
                raise
            return session

    async def _is_writable(self, session: DatabaseSession) -> bool:
        if self.behind_pooler:
            async with own_transaction(session):
                return bool(await session.fetchval(f"SELECT {_IS_WRITABLE}"))
        return bool(await session.fetchval(f"SELECT {_IS_WRITABLE}, {LIFT_LATER_TIMEOUTS}"))

    async def _open(self, timeout: timedelta, options: dict[str, Any]) -> DatabaseSession:
        session = await asyncpg.connect(
            self._target.url,
            connection_class=DatabaseSession,
            timeout=timeout.total_seconds(),
            **tls_arguments(self._target),
            **options,
        )
        assert isinstance(session, DatabaseSession)
        register_array_types(session)
        return session


async def make_own(session: DatabaseSession) -> None:
    """Prepare a session for migrations, once it is known that there is no pooler."""
    await session.execute(set_for_session(FOR_MIGRATIONS))
    await session.execute(f"SELECT {LIFT_LATER_TIMEOUTS}")


@asynccontextmanager
async def own_transaction(session: DatabaseSession, *, readonly: bool = False) -> AsyncIterator[None]:
    """A transaction with its own search path and no statement_timeout. The session may be a
    pooler's.

    A pooler keeps one server, and its settings, only for the length of a transaction.
    """
    async with session.transaction(isolation="read_committed", readonly=readonly):
        await session.execute(_BEGUN_WITH)
        yield


async def _why_not_writable(session: DatabaseSession) -> TakesNoWrites:
    async with own_transaction(session):
        role = await session.fetchval(_READ_ONLY_ROLE)
    return ReadOnlyRole(role) if role else TakesNoWrites("is a standby, or read-only")


def _read(dsn: str) -> DatabaseUrl:
    try:
        return read_database_url(dsn)
    except BadConnectionString:
        return DatabaseUrl(dsn)  # the driver refuses it when it connects


def _names_no_session(dsn: str) -> bool:
    try:
        return chosen_session(dsn) is None
    except ValueError:
        return True  # the driver reports it when it reads the URL


def _several_hosts(dsn: str) -> list[Host]:
    try:
        hosts = list(dict.fromkeys(hosts_in(dsn)))
    except ValueError:
        return []  # the driver reports it when it reads the URL
    return hosts if len(hosts) > 1 else []


def _summary(hosts: list[Host], failures: list[Exception]) -> Exception:
    """One error for all hosts: the refusal if every host refuses the user, else one clause per host."""
    first = failures[0]
    if all(_is_refusal(error) for error in failures):
        return first
    pairs = zip(hosts, failures, strict=True)
    return NoHostTakesWrites("; ".join(f"{host} {describe(error)}" for host, error in pairs), failures)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, asyncpg.PostgresError) and not isinstance(error, asyncpg.CannotConnectNowError)
