"""Transactions of the libraries that `pulse.sql` knows, for tests that run with each of them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker


@dataclass(frozen=True)
class Transaction:
    """An open transaction of a connection."""

    connection: Any
    """What an application passes to `pulse.sql`."""
    run: Callable[[str], Any]
    """Runs a statement of the application."""
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


async def done(answer: Any) -> Any:
    """Return the answer, awaited if it has to be."""
    return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def with_asyncpg(dsn: str) -> AsyncIterator[Transaction]:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield Transaction(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(dsn: str) -> AsyncIterator[Transaction]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Transaction(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def with_psycopg(dsn: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield Transaction(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def with_async_psycopg(dsn: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        yield Transaction(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def with_psycopg2(dsn: str) -> AsyncIterator[Transaction]:
    connection = psycopg2.connect(dsn, cursor_factory=psycopg2.extras.RealDictCursor)
    yield Transaction(
        connection, lambda sql: connection.cursor().execute(sql), connection.commit, connection.rollback
    )
    connection.close()


def with_sqlalchemy(driver: str, make: Callable[[Any], Any]) -> Opened:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Transaction]:
        engine = sqlalchemy.create_engine(sqlalchemy_url(dsn, driver))
        connection = make(engine)
        yield Transaction(
            connection,
            lambda sql: connection.execute(sqlalchemy.text(sql)),
            connection.commit,
            connection.rollback,
        )
        connection.close()
        engine.dispose()

    return opened


def with_async_sqlalchemy(driver: str, make: Callable[[Any], Any]) -> Opened:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Transaction]:
        engine = create_async_engine(sqlalchemy_url(dsn, driver))
        async with make(engine) as connection:
            yield Transaction(
                connection,
                lambda sql: connection.execute(sqlalchemy.text(sql)),
                connection.commit,
                connection.rollback,
            )
        await engine.dispose()

    return opened


@asynccontextmanager
async def with_django(dsn: str) -> AsyncIterator[Transaction]:
    connection = django_connection(dsn)
    connection.set_autocommit(False)
    yield Transaction(
        connection, lambda sql: connection.cursor().execute(sql), connection.commit, connection.rollback
    )
    connection.close()


Opened = Callable[[str], AbstractAsyncContextManager[Transaction]]

LIBRARIES: dict[str, Opened] = {
    "asyncpg": with_asyncpg,
    "asyncpg, of a pool": with_asyncpg_pool,
    "psycopg": with_psycopg,
    "async psycopg": with_async_psycopg,
    "psycopg2": with_psycopg2,
    "Connection over psycopg": with_sqlalchemy("psycopg", lambda engine: engine.connect()),
    "Connection over psycopg2": with_sqlalchemy("psycopg2", lambda engine: engine.connect()),
    "Session over psycopg": with_sqlalchemy("psycopg", Session),
    "Session over psycopg2": with_sqlalchemy("psycopg2", Session),
    "scoped_session": with_sqlalchemy("psycopg", lambda engine: scoped_session(sessionmaker(engine))),
    "AsyncConnection over asyncpg": with_async_sqlalchemy("asyncpg", lambda engine: engine.connect()),
    "AsyncConnection over psycopg": with_async_sqlalchemy("psycopg", lambda engine: engine.connect()),
    "AsyncSession over asyncpg": with_async_sqlalchemy("asyncpg", AsyncSession),
    "AsyncSession over psycopg": with_async_sqlalchemy("psycopg", AsyncSession),
    "Django": with_django,
}


def sqlalchemy_url(dsn: str, driver: str) -> sqlalchemy.URL:
    """Return the address in the form of SQLAlchemy."""
    facts = facts_of(dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=facts["user"],
        password=facts["password"] or None,
        database=facts["dbname"],
        query={"host": facts["host"], "port": facts["port"]},
    )


def django_connection(dsn: str) -> Any:
    """Return Django's connection, as `django.db.connection` is one, to this database."""
    from django.conf import settings
    from django.db import connections

    facts = facts_of(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": facts["dbname"],
        "USER": facts["user"],
        "PASSWORD": facts["password"],
        "HOST": facts["host"],
        "PORT": facts["port"],
    }
    if not settings.configured:
        import django

        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[], USE_TZ=True)
        django.setup()
    connection = connections["default"]
    connection.close()
    connection.settings_dict.update(database)
    return connection


def facts_of(dsn: str) -> dict[str, str]:
    """Return the parts of the address, which may name a socket in its query."""
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    return {
        "user": unquote(parts.username or query.get("user", "")),
        "password": unquote(parts.password or ""),
        "dbname": parts.path.strip("/"),
        "host": parts.hostname or query.get("host", ""),
        "port": str(parts.port or query.get("port", 5432)),
    }
