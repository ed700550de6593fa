"""Roles that a DBA might have made: ordinary ones, with limits and defaults of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

_NUMBERS = itertools.count(1)


def as_role(dsn: str, role: str, password: str = "") -> str:
    """The DSN of the same database for another role."""
    parts = urlsplit(dsn)
    netloc = f"{role}{f':{quote(password)}' if password else ''}@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc))


@asynccontextmanager
async def role_in(dsn: str, *statements: str) -> AsyncIterator[tuple[str, str]]:
    """A role, and a DSN for it, for the length of a block. Statements may use {role} and {database}."""
    names = {"database": urlsplit(dsn).path[1:]}
    role = f"clerk_{os.getpid()}_{next(_NUMBERS)}"
    secret = "a clerk's"
    escaped = secret.replace("'", "''")
    await execute(dsn, f"CREATE ROLE {role} LOGIN PASSWORD '{escaped}'")
    try:
        await execute(dsn, *(statement.format(role=role, **names) for statement in statements))
        yield role, as_role(dsn, role, secret)
    finally:
        await execute(dsn, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=60)
    for statement in statements:
        await connection.execute(statement)
    await connection.close(timeout=10)
