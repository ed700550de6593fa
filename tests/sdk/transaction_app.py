"""An application whose handlers run in processes, and complete their jobs there. Started as a script."""

from __future__ import annotations

import asyncio
import os

import asyncpg
import psycopg

import pulse

p = pulse.Pulse(os.environ["ADDRESS"])
INSERT = "INSERT INTO effects DEFAULT VALUES"


@p.job("charge", process=True)
def charge(ctx: pulse.SyncContext, commits: bool) -> None:
    with psycopg.connect(os.environ["DSN"]) as connection:
        connection.execute(INSERT)
        ctx.complete(connection, {"paid": 7})
        if not commits:
            connection.rollback()


@p.job("charge-async", process=True)
async def charge_async(ctx: pulse.Context, commits: bool) -> None:
    connection = await asyncpg.connect(os.environ["DSN"])
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(INSERT)
    await ctx.complete(connection, {"paid": 7})
    await (transaction.commit() if commits else transaction.rollback())
    await connection.close()


if __name__ == "__main__":
    asyncio.run(p.run())
