"""Waits for a database to accept connections, and reports why it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.postgres.connector import Connector
from pulse_server.postgres.failures import ReadOnlyRole, TakesNoWrites, describe, is_starting

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
