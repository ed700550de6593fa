"""Handlers that complete their jobs together with rows, in the same transaction."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg

from pulse.handlers.context import Context

INSERT = "INSERT INTO effects DEFAULT VALUES"
Database: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def effects(database: Database) -> int:
    count: int = await database.fetchval("SELECT count(*) FROM effects")
    return count


async def commit(ctx: Context, dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(INSERT)
            await ctx.complete(connection)
    finally:
        await connection.close()


class FakeConnection:
    """A connection of asyncpg on which every statement succeeds."""

    def __init__(self, *, is_in_transaction: bool = True) -> None:
        self._is_in_transaction = is_in_transaction
        self.statements: list[tuple[Any, ...]] = []

    def is_in_transaction(self) -> bool:
        return self._is_in_transaction

    async def fetchrow(self, *statement: Any) -> tuple[Any, ...]:
        self.statements.append(statement)
        return (None,)


FakeConnection.__module__ = "asyncpg.fake"
