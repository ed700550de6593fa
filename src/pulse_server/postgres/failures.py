"""Translates errors of the driver into errors that a caller can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import asyncpg

from pulse_server.base.errors import ResourceExhausted, Unavailable


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
