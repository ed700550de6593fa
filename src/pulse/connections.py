"""Runs a statement on a connection of the application, whichever library the connection comes from.

No driver is imported here: the package of the connection's class names the library. Statements have their
parameters as $1, $2 and so on, each once, in order and with a cast: drivers disagree about types.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from pulse.errors import (
    AlreadyCompleted,
    AlreadyExists,
    ClaimLost,
    InvalidArgument,
    PermissionDenied,
    PulseError,
    Unavailable,
)

Row: TypeAlias = Sequence[Any]


class Statement(NamedTuple):
    """A statement that returns one row."""

    text: str
    values: Sequence[Any]
    verb: str
    """The verb that was called, for messages."""
    needs_transaction: bool

    @property
    def with_percents(self) -> str:
        """The text with the parameters of DB-API drivers."""
        return re.sub(r"\$\d+", "%s", self.text)

    def check(self, *, is_in_transaction: bool) -> None:
        """Raise InvalidArgument if it needs a transaction and there is none."""
        if self.needs_transaction and not is_in_transaction:
            raise InvalidArgument(
                f"{self.verb} was called outside of a transaction: the connection would commit at once, and "
                "apart from your rows. Begin a transaction first."
            )


def is_async(connection: Any) -> bool:
    """True if statements on this connection are awaited. Raises InvalidArgument if it is no connection."""
    library, connection = _library_of(connection)
    return library.fetch is None or inspect.iscoroutinefunction(getattr(connection, "execute", None))


def fetch(connection: Any, statement: Statement) -> Row:
    """Run the statement on a connection that blocks. Returns its row. Raises a PulseError.

    A deadlock or a lost connection raises the error of the driver: the application has to handle it.
    """
    library, connection = _library_of(connection)
    assert library.fetch is not None, "the connection is async"
    try:
        return library.fetch(connection, statement)
    except Exception as error:
        if (translated := _translate(error)) is not None:
            raise translated from error
        raise


async def fetch_async(connection: Any, statement: Statement) -> Row:
    """Do the same on an async connection."""
    library, connection = _library_of(connection)
    assert library.fetch_async is not None, "the connection blocks"
    try:
        return await library.fetch_async(connection, statement)
    except Exception as error:
        if (translated := _translate(error)) is not None:
            raise translated from error
        raise


def call_after_commit(connection: Any, call: Callable[[], None]) -> None:
    """Call the function after the commit, if the library reports commits: Django, and sessions of SQLAlchemy.

    It may be called after a rollback too.
    """
    library, connection = _library_of(connection)
    if library.after_commit is not None:
        library.after_commit(connection, call)


# ------------------------------------------------------------ libraries


async def _fetch_asyncpg(connection: Any, statement: Statement) -> Row:
    statement.check(is_in_transaction=connection.is_in_transaction())
    row: Row = await connection.fetchrow(statement.text, *statement.values)
    return row


def _fetch_psycopg(connection: Any, statement: Statement) -> Row:
    statement.check(is_in_transaction=_is_in_transaction(connection))
    with connection.cursor(row_factory=_plain_rows) as cursor:
        cursor.execute(statement.with_percents, statement.values)
        row: Row = cursor.fetchone()
        return row


async def _fetch_psycopg_async(connection: Any, statement: Statement) -> Row:
    statement.check(is_in_transaction=_is_in_transaction(connection))
    async with connection.cursor(row_factory=_plain_rows) as cursor:
        await cursor.execute(statement.with_percents, statement.values)
        row: Row = await cursor.fetchone()
        return row


def _plain_rows(_cursor: object) -> type[tuple[Any, ...]]:
    """A row factory of psycopg. The connection may have another one."""
    return tuple


def _fetch_psycopg2(connection: Any, statement: Statement) -> Row:
    statement.check(is_in_transaction=_is_in_transaction(connection))
    with connection.cursor() as cursor:
        cursor.execute(statement.with_percents, statement.values)
        row: Any = cursor.fetchone()
        return tuple(row.values()) if isinstance(row, dict) else row  # of a RealDictCursor


def _is_in_transaction(connection: Any) -> bool:
    # Without autocommit the statement itself begins a transaction. Status 0: idle.
    return not connection.autocommit or connection.info.transaction_status != 0


def _fetch_sqlalchemy(connection: Any, statement: Statement) -> Row:
    """`connection` is a Connection or a Session."""
    if not hasattr(connection, "exec_driver_sql"):
        connection = connection.connection()
    _check_is_postgres(connection.dialect.name)
    # A Connection and a Session begin a transaction by themselves, unless they are set to autocommit.
    autocommits = getattr(connection.connection.dbapi_connection, "autocommit", False)
    statement.check(is_in_transaction=not autocommits)
    # The driver's own parameters: SQLAlchemy would guess a type for each value.
    has_numbers = connection.dialect.paramstyle == "numeric_dollar"
    text = statement.text if has_numbers else statement.with_percents
    row: Row = connection.exec_driver_sql(text, tuple(statement.values)).one()
    return row


async def _fetch_sqlalchemy_async(connection: Any, statement: Statement) -> Row:
    row: Row = await connection.run_sync(_fetch_sqlalchemy, statement)
    return row


def _after_commit_sqlalchemy(connection: Any, call: Callable[[], None]) -> None:
    # Events of a Connection come before its commit: only sessions have one after it.
    session = getattr(connection, "sync_session", connection)
    if not hasattr(session, "info") or hasattr(session, "exec_driver_sql"):
        return
    if _CALLS not in session.info:
        session.info[_CALLS] = set()
        import_module("sqlalchemy.event").listen(session, "after_transaction_end", _call_after_end)
    session.info[_CALLS].add(call)


_CALLS = "pulse.after_commit"


def _call_after_end(session: Any, transaction: Any) -> None:
    if transaction.parent is None:  # else it is a savepoint
        calls, session.info[_CALLS] = session.info[_CALLS], set()
        for call in calls:
            call()


def _fetch_django(connection: Any, statement: Statement) -> Row:
    _check_is_postgres(connection.vendor)
    statement.check(is_in_transaction=connection.in_atomic_block or not connection.get_autocommit())
    with connection.cursor() as cursor:
        cursor.execute(statement.with_percents, statement.values)
        row: Row = cursor.fetchone()
        return row


def _after_commit_django(connection: Any, call: Callable[[], None]) -> None:
    if connection.in_atomic_block or connection.get_autocommit():  # else the application commits by hand
        connection.on_commit(call)


def _check_is_postgres(vendor: str) -> None:
    if vendor != "postgresql":
        raise InvalidArgument(
            f"The connection is to {vendor}, and the functions of pulse are in the database of pulsed, which "
            "is PostgreSQL."
        )


@dataclass(frozen=True, slots=True)
class _Library:
    has: str
    """An attribute that its connections have, and its pools and engines do not."""
    fetch: Callable[[Any, Statement], Row] | None = None
    fetch_async: Callable[[Any, Statement], Awaitable[Row]] | None = None
    after_commit: Callable[[Any, Callable[[], None]], None] | None = None


_LIBRARIES = {
    "asyncpg": _Library("is_in_transaction", None, _fetch_asyncpg),
    "psycopg": _Library("autocommit", _fetch_psycopg, _fetch_psycopg_async),
    "psycopg2": _Library("autocommit", _fetch_psycopg2),
    "sqlalchemy": _Library("execute", _fetch_sqlalchemy, _fetch_sqlalchemy_async, _after_commit_sqlalchemy),
    "django": _Library("in_atomic_block", _fetch_django, None, _after_commit_django),
}


def _library_of(connection: Any) -> tuple[_Library, Any]:
    """Return the library, and the connection itself where a scoped session stands for one."""
    # Also of the classes that it extends: an application or a plugin may have its own.
    for cls in type(connection).__mro__:
        library = _LIBRARIES.get(cls.__module__.partition(".")[0])
        if library is not None and hasattr(connection, library.has):
            return library, connection() if "scoped_session" in type(connection).__name__ else connection
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise InvalidArgument(
        f"{name} is not a connection that pulse knows. Give a connection of asyncpg, psycopg, psycopg2 or "
        "Django, or a connection or session of SQLAlchemy; not a pool or an engine."
    )


# ------------------------------------------------------------ errors

_ERRORS: dict[str, type[PulseError]] = {
    "22023": InvalidArgument,
    "0A000": InvalidArgument,  # a key above READ COMMITTED
    "23502": InvalidArgument,  # these two are constraints of an outbox
    "23514": InvalidArgument,
    "23505": AlreadyExists,
    "55P03": Unavailable,
    "PU001": ClaimLost,
    "PU002": AlreadyCompleted,
}
# Postgres raises these itself, without a hint about pulse.
_SENTENCES: dict[str, tuple[type[PulseError], str]] = {
    "42501": (PermissionDenied, "Its role lacks a right, which an operator gives it: see `pulsed grants`."),
    "42883": (InvalidArgument, "Its database has no such function: is it that of pulsed, and migrated?"),
    "3F000": (InvalidArgument, "Its database has no such schema: is it that of pulsed, and migrated?"),
}


def _translate(error: BaseException) -> PulseError | None:
    """Return the error for the SQLSTATE, or None if the error is the application's to handle."""
    inner: Any = error
    found: Any = None
    while inner is not None:  # libraries wrap the error of the driver
        if _state_of(inner) is not None:
            found = inner
        inner = getattr(inner, "orig", None) or inner.__cause__
    if found is None:
        return None
    state = _state_of(found)
    diagnostics = getattr(found, "diag", None)  # of psycopg and psycopg2
    sentence = getattr(diagnostics, "message_primary", None) or getattr(found, "message", None) or str(found)
    if state in _ERRORS:
        return _ERRORS[state](sentence)
    if state in _SENTENCES:
        kind, hint = _SENTENCES[state]
        return kind(f"The connection cannot be used: {sentence}. {hint}")
    return None


def _state_of(error: Any) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None
