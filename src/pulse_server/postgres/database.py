"""Connections: who may use how many, with which planner settings, and how long each statement may take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

import asyncpg

from pulse_server import tuning
from pulse_server.domain.errors import Unavailable
from pulse_server.postgres.failures import translated

# Leaves the planner nothing but index nested loops with one generic plan per statement. With the defaults it
# takes sequential scans and hash joins for large batches, or the wrong partial index when statistics are
# stale: drains fell from 20k to 3k jobs/s. ADR-0007
HOT_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
_SESSION = {"application_name": "pulsed", "timezone": "UTC"}

Rows: TypeAlias = Sequence[asyncpg.Record]


class Connections:
    """A few connections of one kind. A statement that is late is given up, and its connection with it."""

    def __init__(
        self, dsn: str, *, size: int, timeout: timedelta, plans: dict[str, str] | None = None
    ) -> None:
        self._dsn = dsn
        self._size = size
        self._timeout = timeout.total_seconds()
        self._settings = {
            **_SESSION,
            # The server gives up a little before we do: a statement must not commit after its UNAVAILABLE
            # more often than a lost answer makes it.
            "statement_timeout": str(int(self._timeout * 900)),
            **(plans or {}),
        }
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            max_inactive_connection_lifetime=0,
            reset=_keep_as_it_is,
            timeout=tuning.CONNECT_TIMEOUT.total_seconds(),
            server_settings=self._settings,
        )

    async def fetch(self, name: str, statement: str, *args: object) -> Rows:
        """Run the statement and return its rows. Unavailable if that takes too long or cannot be had."""
        with translated(name):
            return await self._fetch(statement, args)

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()

    async def _fetch(self, statement: str, args: tuple[object, ...]) -> Rows:
        assert self._pool is not None, "open() comes first"
        connection = await self._pool.acquire(timeout=self._timeout)
        try:
            return await connection.fetch(statement, *args, timeout=self._timeout)
        except (TimeoutError, asyncio.CancelledError):
            # A frozen server would not read a cancel request either: drop the connection, do not wait on it.
            connection.terminate()
            raise
        finally:
            await self._pool.release(connection)


class Database:
    """The connections of one server: hot transitions, heartbeats, and reads with the planner left free."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.hot = Connections(
            dsn, size=tuning.HOT_CONNECTIONS, timeout=tuning.STATEMENT_TIMEOUT, plans=HOT_PLANS
        )
        self.beats = Connections(
            dsn, size=tuning.HEARTBEAT_CONNECTIONS, timeout=tuning.STATEMENT_TIMEOUT, plans=HOT_PLANS
        )
        self.reads = Connections(dsn, size=tuning.READ_CONNECTIONS, timeout=tuning.READ_TIMEOUT)

    async def open(self) -> None:
        for connections in (self.hot, self.beats, self.reads):
            await connections.open()

    async def close(self) -> None:
        for connections in (self.hot, self.beats, self.reads):
            await connections.close()


async def connect(
    dsn: str,
    *,
    timeout: timedelta = tuning.CONNECT_TIMEOUT,
    server_settings: dict[str, str] | None = None,
) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection that belongs to no pool."""
    return await asyncpg.connect(dsn, timeout=timeout.total_seconds(), server_settings=server_settings)


async def wait_until_reachable(dsn: str, patience: timedelta) -> None:
    """Return once the database takes connections; Unavailable with the reason if it does not in time."""
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    while True:
        try:
            connection = await connect(dsn, timeout=min(timedelta(seconds=2), patience))
        except (TimeoutError, OSError, asyncpg.CannotConnectNowError) as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(
                    f"The database does not answer: {describe(error)}. Does it run, and does DB_HOST name it?"
                ) from error
            await asyncio.sleep(0.2)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unavailable(
                f"The database refuses the connection: {describe(error)}. Look at DB_HOST."
            ) from error
        except ValueError:
            # Its text quotes the piece that could not be read, which may be a part of the password.
            raise Unavailable(
                "DB_HOST cannot be read as a URL. Write special characters of the password as %xx: / is %2F, "
                "# is %23, ? is %3F, @ is %40."
            ) from None
        else:
            await connection.close(timeout=2)
            return


def describe(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


async def _keep_as_it_is(connection: object) -> None:
    """No reset between statements: it would cost each of them a second round trip."""
