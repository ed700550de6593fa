"""Databases in a Postgres that tests may use, and the database of a pulsed for tests, empty for each test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from typing import Any

from pulse.errors import InvalidArgument
from pulse_server.database.connector import tls_arguments
from pulse_server.database.urls import (
    BadConnectionString,
    DatabaseUrl,
    is_url,
    read_database_url,
    split_url,
    with_parameters,
)

# Rows of the migrations, and of the server that runs.
_KEPT = ["schema_migrations", "dispatch_control", "servers", "spared_workers"]
_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'pulse'::regnamespace AND relkind = 'r' AND NOT relname = ANY($1)
    ORDER BY relname
"""


@contextlib.contextmanager
def own_database(given: str) -> Iterator[str]:
    """Create a database in the cluster of DB_HOST, and drop it at the end. Yields its own DB_HOST.

    Raises InvalidArgument for a DB_HOST that pulsed could not read.
    """
    try:
        cluster = read_database_url(given)
        name = f"pulse_test_{uuid.uuid4().hex}"
        own = named(given, name)
    except BadConnectionString as error:
        raise InvalidArgument(
            f"DB_HOST {error} If your application has a DB_HOST for itself, remove it from os.environ in "
            "conftest.py, or put the URL of a Postgres for tests there."
        ) from None
    _run(cluster, lambda connection: connection.execute(f'CREATE DATABASE "{name}"'))
    try:
        yield own
    finally:
        _run(cluster, lambda connection: connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'))


def delete_rows(url: str, tables: Collection[str] = ()) -> None:
    """Delete what tests have stored in these tables, or in all. The server goes on."""

    async def delete(connection: Any) -> None:
        names = tables or [row["relname"] for row in await connection.fetch(_TABLES, _KEPT)]
        for name in names:  # each in a transaction of its own: a server locks rows in another order
            await connection.execute(f"DELETE FROM pulse.{name}")

    _run(read_database_url(url), delete)


async def connect(target: DatabaseUrl) -> Any:
    """Open a session."""
    import asyncpg

    return await asyncpg.connect(target.url, **tls_arguments(target))


@contextlib.asynccontextmanager
async def connected(target: DatabaseUrl) -> AsyncIterator[Any]:
    """Open a session for the length of a block."""
    connection = await connect(target)
    try:
        yield connection
    finally:
        await connection.close()


def _run(target: DatabaseUrl, action: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    async def run() -> None:
        async with connected(target) as connection:
            await action(connection)

    _in_thread(lambda: asyncio.run(run()))


def _in_thread(call: Callable[[], None]) -> None:
    """Run it in another thread: the fixture of an async test may be set up inside its event loop."""
    errors: list[BaseException] = []

    def caught() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def named(given: str, database: str) -> str:
    """Return the URL with another database."""
    given = given.strip()
    if not is_url(given):
        return f"{given} dbname={database}"
    base, parameters = split_url(given)
    scheme, _, rest = base.partition("://")
    others = {name: value for name, value in parameters.items() if name not in ("dbname", "database")}
    return with_parameters(f"{scheme}://{rest.partition('/')[0]}/{database}", others)
