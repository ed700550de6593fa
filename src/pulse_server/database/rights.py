"""Inspects a database for `pulsed check`: its version, limits, settings and missing rights.

The rights that the role of DB_HOST lacks are written as statements that a DBA can run. So are those to call
the functions that applications use in their own transactions (ADR-0075). A start waits for a database that
does not accept connections yet, and reports why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NamedTuple, TypeVar

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.database.connector import (
    Connector,
    DatabaseSession,
    ReadOnlyRole,
    TakesNoWrites,
    describe,
    is_starting,
    own_transaction,
    translated,
)
from pulse_server.database.statements import statements

log = logging.getLogger(__name__)

# The timeout of one try to connect at the start, and the pause between two tries.
STARTUP_TRY = timedelta(seconds=2)
STARTUP_PAUSE = timedelta(milliseconds=200)
# How long a server that starts waits for a database that does not answer yet.
STARTUP_PATIENCE = timedelta(seconds=6)

# How long a database that answered before may be away during a start: its address is right, so it is
# restarted or fails over.
OUTAGE_PATIENCE = timedelta(minutes=1)
# How long one may report that it starts or recovers: a recovery takes minutes, a loop of crashes no end.
RECOVERY_PATIENCE = timedelta(hours=1)

Result = TypeVar("Result")

# The database does not listen yet, starts, stops, hangs up, or has no connection left for now.
_NOT_YET = (
    TimeoutError,
    OSError,
    asyncpg.OperatorInterventionError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TooManyConnectionsError,
)
# The same, noticed during a statement.
_GONE = (
    *_NOT_YET,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)
# These answers do not change by themselves: the role is read-only, or a pooler takes no session settings.
_LASTING = (ReadOnlyRole, asyncpg.ProtocolViolationError)


async def through_outages(
    dsn: str, action: Callable[[], Awaitable[Result]], patience: timedelta = OUTAGE_PATIENCE
) -> Result:
    """Run the action of a start, again each time that the database goes away during it.

    Raises the error of the action once that has taken longer than `patience`, and at once if it has
    another cause. The action must be one that can be repeated.
    """
    clock = asyncio.get_running_loop().time
    deadline: float | None = None
    while True:
        try:
            return await action()
        except (PulseError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if not _is_away(error) or (deadline is not None and clock() >= deadline):
                raise
            if deadline is None:
                deadline = clock() + patience.total_seconds()
                log.warning("database_went_away", extra={"reason": describe(error)})
        await asyncio.sleep(STARTUP_PAUSE.total_seconds())
        await wait_until_reachable(dsn, timedelta(seconds=max(deadline - clock(), 0.0)))


def _is_away(error: Exception) -> bool:
    cause = error.__cause__ if isinstance(error, Unavailable) else error
    return isinstance(cause, _GONE) and not isinstance(cause, _LASTING)


async def wait_until_reachable(dsn: str, patience: timedelta) -> None:
    """Return once the database accepts connections; Unavailable with the reason if it does not in
    time.

    A database that reports that it starts or recovers is waited for much longer.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience.total_seconds()
    recovers_until = clock() + RECOVERY_PATIENCE.total_seconds()
    is_logged = False
    connector = Connector(dsn, behind_pooler=True)  # works with and without a pooler
    one_try = None if connector.connect_timeout else min(STARTUP_TRY, patience)
    while True:
        try:
            connection = await connector.connect(timeout=one_try)
        except _NOT_YET as error:
            if is_starting(error) and clock() < recovers_until:
                deadline = clock() + patience.total_seconds()
                if not is_logged:
                    log.warning("database_is_starting", extra={"reason": describe(error)})
                    is_logged = True
            elif clock() >= min(deadline, recovers_until):
                raise Unavailable(_why_not(error)) from error
            await asyncio.sleep(STARTUP_PAUSE.total_seconds())
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unavailable(
                f"The database refuses the connection: {describe(error)}. Look at DB_HOST."
            ) from error
        except ValueError:
            # The error quotes the unreadable part, which may be a part of the password.
            raise Unavailable(
                "DB_HOST cannot be read as a URL. Write special characters of the password as %xx: / is %2F, "
                "# is %23, ? is %3F, @ is %40."
            ) from None
        else:
            await connection.close(timeout=STARTUP_TRY.total_seconds())
            return


def _why_not(error: Exception) -> str:
    if isinstance(error, ReadOnlyRole):
        return f"The database {describe(error)}."
    if isinstance(error, TakesNoWrites):
        return f"The database {describe(error)}. Name the primary in DB_HOST, or all hosts."
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return (
            f"The database takes no more connections: {describe(error)}. Each process of pulsed needs "
            f"up to {tuning.connections_of_a_process()}. Raise the CONNECTION LIMIT of the role or the "
            "database, or max_connections."
        )
    if isinstance(error, asyncpg.QueryCanceledError):
        return (
            f"The database ended the first statement of a session: {describe(error)}. If the role or the "
            "database has a statement_timeout of its own, remove it: ALTER ROLE … RESET statement_timeout; "
            "or ALTER DATABASE … RESET statement_timeout;"
        )
    if "rejected SSL upgrade" in str(error):  # the driver has no class for it
        return "The database speaks no TLS, and sslmode in DB_HOST asks for it. Change one of the two."
    return f"The database does not answer: {describe(error)}. Does it run, and does DB_HOST name it?"


_SQL = statements("database/rights.sql")


class Purpose(Enum):
    """The purpose of the rights. The value is the section of the SQL file."""

    LOOK = "grants_to_look"
    SERVE = "grants_to_serve"
    MIGRATE = "grants_to_migrate"


_WORDS = {
    Purpose.LOOK: "look at the schema pulse",
    Purpose.SERVE: "use the schema pulse",
    Purpose.MIGRATE: "change the schema pulse",
}


class RightsMissing(PulseError):
    """The role lacks rights; the message has the GRANTs to run."""

    def __init__(self, role: str, purpose: Purpose, grants: list[str]) -> None:
        self.grants = grants
        super().__init__(
            f"The database role {role} may not {_WORDS[purpose]}. Have the owner of the database, or a "
            f"superuser, run: {' '.join(grants)}"
        )


async def lacking_grants(
    connection: DatabaseSession, purpose: Purpose, relations: Sequence[str] | None = None
) -> list[str]:
    """The statements to run; empty if no right is missing. In a transaction: a pooler may be in
    between.

    `relations` are the names that a migration changes; None: all.
    """
    arguments = (relations,) if purpose is Purpose.MIGRATE else ()
    return [row["statement"] for row in await connection.fetch(_SQL[purpose.value], *arguments)]


async def require_rights(
    connection: DatabaseSession, purpose: Purpose, relations: Sequence[str] | None = None
) -> None:
    """Return if the role has the rights; RightsMissing if not."""
    async with own_transaction(connection):
        if grants := await lacking_grants(connection, purpose, relations):
            raise RightsMissing(await connection.fetchval("SELECT CURRENT_USER::text"), purpose, grants)


# The functions of database/interface/, by the right that a role is granted.
RIGHTS: Mapping[str, Sequence[str]] = {
    "enqueue": ("enqueue", "enqueue_json", "enqueue_many", "enqueue_workflow"),
    "complete": ("complete_job",),
}


def grants(roles: Mapping[str, Sequence[str]]) -> list[str]:
    """The statements that grant rights to roles, given as the roles of each right."""
    named = dict.fromkeys(role for right in RIGHTS for role in roles.get(right, ()))
    return [
        f"GRANT USAGE ON SCHEMA pulse TO {_listed(named)};",
        *(
            f"GRANT EXECUTE ON FUNCTION {', '.join(f'pulse.{name}' for name in functions)} "
            f"TO {_listed(dict.fromkeys(roles[right]))};"
            for right, functions in RIGHTS.items()
            if roles.get(right)
        ),
    ]


def _listed(roles: Mapping[str, None]) -> str:
    return ", ".join('"{}"'.format(role.replace('"', '""')) for role in roles)


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """A connection limit, and the number of open connections."""

    what: str
    """Whose limit it is, such as "the role pulse"."""
    allowed: int
    used: int
    raising: str
    """The statement that raises the limit, without the number at its end."""
    reserved: int
    """Reserved connections, which the new limit must include."""
    afterwards: str

    def sentence(self, needed: int) -> str:
        """Why the limit is too low, and the statement that raises it."""
        return (
            f"{self.what} allows {self.allowed} connections and {self.used} are open, but this pulsed needs "
            f"up to {needed}. Run {self.raising} {self.reserved + self.used + needed};{self.afterwards}"
        )


async def limits_of(connection: DatabaseSession) -> list[ConnectionLimit]:
    """Every limit that applies to this role. In a transaction: a pooler may be in between."""
    return [ConnectionLimit(**dict(row)) for row in await connection.fetch(_SQL["connection_limits"])]


async def warn_of_low_limits(connection: DatabaseSession, needed: int) -> None:
    """Log each limit that this server may reach, with the number that it needs."""
    async with own_transaction(connection):
        limits = await limits_of(connection)
    for limit in limits:
        if limit.allowed - limit.used < needed:
            log.warning(
                "connection_limit_is_low",
                extra={
                    "limit": limit.allowed,
                    "used": limit.used,
                    "needed": needed,
                    "hint": f"{limit.sentence(needed)} Under load, calls fail as UNAVAILABLE until then.",
                },
            )


_NAMED = 3  # names shown of a long list, as in inspect_shadows


class GrantedRight(NamedTuple):
    """A right that a role has to functions of the interface."""

    right: str
    role: str | None
    """None is PUBLIC."""
    is_whole: bool
    """The role may call every function of the right."""


class Onlooker(NamedTuple):
    """A role that may connect and does not serve."""

    name: str
    is_superuser: bool
    sees_statements: bool
    """Those of the sessions of other roles."""
    reads_secret: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    version: str
    role: str
    database: str
    is_read_only: bool
    is_pooled: bool
    """A pooler such as PgBouncer is in between."""
    clock_ahead: timedelta
    """How far the database's clock is ahead of this machine's."""
    synchronous_commit: str
    has_fsync: bool
    limits: list[ConnectionLimit]
    connections_of_pulsed: int
    oldest_transaction: timedelta
    idle_in_transaction: timedelta
    owns_schema: bool | None
    """None if there is no schema yet."""
    lacking: dict[str, str]
    """Privileges that are missing, by table."""
    grants_to_serve: list[str]
    grants_to_migrate: list[str]
    """The statements that grant the role its missing rights."""
    without_identity: dict[str, str]
    """Tables whose rows a publication keeps from being changed, each with the publication."""
    creators: dict[str, str]
    """The other roles that may create functions, by schema."""
    shadows: dict[str, str]
    """Functions and operators of other roles under the names of built-in ones, by owner."""
    interface: list[GrantedRight]
    onlookers: list[Onlooker]
    connect_is_public: bool
    """Every role of the server may connect."""


async def inspect(dsn: str) -> Inspection:
    """Ask the database about itself and change nothing. Unavailable if it does not answer."""
    with translated("check"):
        # Leaves nothing prepared, so it works with and without a pooler.
        connection = await Connector(dsn, behind_pooler=True).connect(
            settings={"application_name": "pulsed check"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            async with own_transaction(connection, readonly=True):
                is_pooled = (
                    await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
                )
                asked = datetime.now(UTC)
                row = await connection.fetchrow(_SQL["inspect_server"])
                answered = datetime.now(UTC)
                limits = await limits_of(connection)
                lacking = await connection.fetch(_SQL["inspect_privileges"])
                grants_to_serve = await lacking_grants(connection, Purpose.SERVE)
                grants_to_migrate = await lacking_grants(connection, Purpose.MIGRATE)
                identities = await connection.fetch(_SQL["inspect_identities"])
                creators = await connection.fetch(_SQL["inspect_creators"])
                shadows = await connection.fetch(_SQL["inspect_shadows"])
                onlookers = await connection.fetch(_SQL["inspect_onlookers"])
                functions = [(right, name) for right, names in RIGHTS.items() for name in names]
                interface = await connection.fetch(_SQL["inspect_interface"], *zip(*functions, strict=True))
        finally:
            connection.terminate()
    assert row is not None
    values = dict(row)
    return Inspection(
        **{name: values[name] for name in values.keys() & Inspection.__dataclass_fields__.keys()},
        is_pooled=is_pooled,
        limits=limits,
        clock_ahead=values["now"] - (asked + (answered - asked) / 2),
        oldest_transaction=timedelta(seconds=values["oldest_transaction_seconds"]),
        idle_in_transaction=timedelta(seconds=values["idle_in_transaction_seconds"]),
        lacking={entry["relation"]: entry["lacking"] for entry in lacking},
        grants_to_serve=grants_to_serve,
        grants_to_migrate=grants_to_migrate,
        without_identity={entry["relation"]: entry["publication"] for entry in identities},
        creators={entry["schema"]: entry["roles"] for entry in creators},
        shadows={entry["owner"]: _some(entry["names"], entry["total"]) for entry in shadows},
        interface=[GrantedRight(*entry) for entry in interface],
        onlookers=[Onlooker(*entry) for entry in onlookers],
    )


def _some(names: str, total: int) -> str:
    rest = total - _NAMED
    return f"{names} and {rest} more" if rest > 0 else names
