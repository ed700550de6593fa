"""Waits for a database to accept connections, and reports why it does not."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import asyncpg

from pulse_server import tuning
from pulse_server.domain.errors import Unavailable
from pulse_server.postgres.connector import Connector
from pulse_server.postgres.failures import ReadOnlyRole, TakesNoWrites, describe, is_starting

log = logging.getLogger(__name__)

# The timeout of one try to connect at the start, and the pause between two tries.
STARTUP_TRY = timedelta(seconds=2)
STARTUP_PAUSE = timedelta(milliseconds=200)

# The database does not listen yet, starts, stops, hangs up, or has no connection left for now.
_NOT_YET = (
    TimeoutError,
    OSError,
    asyncpg.OperatorInterventionError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TooManyConnectionsError,
)


async def wait_until_reachable(dsn: str, patience: timedelta) -> None:
    """Return once the database accepts connections; Unavailable with the reason if it does not in
    time.

    A database that reports that it starts or recovers is waited for without a limit: a recovery may
    take minutes.
    """
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    is_logged = False
    connector = Connector(dsn, behind_pooler=True)  # works with and without a pooler
    one_try = None if connector.connect_timeout else min(STARTUP_TRY, patience)
    while True:
        try:
            connection = await connector.connect(timeout=one_try)
        except _NOT_YET as error:
            if is_starting(error):
                deadline = asyncio.get_running_loop().time() + patience.total_seconds()
                if not is_logged:
                    log.warning("database_is_starting", extra={"reason": describe(error)})
                    is_logged = True
            elif asyncio.get_running_loop().time() >= deadline:
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
