"""Connections: who may use how many, with which planner settings, and how long each statement may take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import perf_counter
from typing import NamedTuple, TypeAlias

import asyncpg

from pulse_server import tuning
from pulse_server.domain.errors import PulseError
from pulse_server.postgres.connector import Connector, Session
from pulse_server.postgres.failures import translated
from pulse_server.postgres.pool import Pool
from pulse_server.postgres.session_settings import ALWAYS, begin_with
from pulse_server.telemetry.metrics import Metrics

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
# For questions of operators. Joins and the values at hand are the planner's business, but the way to the jobs
# is an index: with statistics of a time when nothing was finished, a count of what waits would read the whole
# table. ADR-0026
READ_PLANS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
_SESSION = {"application_name": "pulsed", "timezone": "UTC"}

Rows: TypeAlias = Sequence[asyncpg.Record]


class PoolUse(NamedTuple):
    opened: int
    busy: int
    allowed: int


class Connections:
    """A few connections of one kind. A statement that is late is given up, and its connection with it."""

    def __init__(
        self,
        connector: Connector,
        *,
        size: int,
        timeout: timedelta,
        plans: dict[str, str] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._connector = connector
        self._size = size
        self._timeout = timeout.total_seconds()
        self._metrics = metrics or Metrics()
        settings = {
            # The server gives up a little before we do: a statement must not commit after its UNAVAILABLE
            # more often than a lost answer makes it.
            "statement_timeout": str(int(self._timeout * 900)),
            **(plans or {}),
        }
        # Of a session, or behind a pooler, where there is none to rely on, of each transaction. ADR-0022
        self._settings = _SESSION if connector.behind_pooler else _SESSION | settings
        self._begin = begin_with(ALWAYS | settings)
        # A server that lives ends a late statement by itself: one that does not is frozen, or cut off. Where
        # little time is given, that it took too long tells nothing.
        self._is_telling = connector.has_alternatives and timeout >= tuning.STATEMENT_TIMEOUT
        self._pool = Pool(self._connect, size)

    async def fetch(self, name: str, statement: str, *args: object) -> Rows:
        """Run the statement and return its rows. Unavailable if that takes too long or cannot be had."""
        began = perf_counter()
        try:
            with translated(name):
                return await self._fetch(statement, args)
        except PulseError:
            self._metrics.statement_failures.add(name)
            raise
        finally:
            self._metrics.statement_time.observe(name, value=perf_counter() - began)

    @property
    def use(self) -> PoolUse:
        """How many connections are open, in use, and allowed."""
        return PoolUse(self._pool.opened, self._pool.busy, self._size)

    def close(self) -> None:
        self._pool.close()

    async def _connect(self) -> Session:
        return await self._connector.connect(settings=self._settings)

    async def _fetch(self, statement: str, args: tuple[object, ...]) -> Rows:
        connection = await self._borrow()
        try:
            if self._connector.behind_pooler:
                return await self._fetch_in_transaction(connection, statement, args)
            return await connection.fetch(statement, *args, timeout=self._timeout)
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, TimeoutError) and self._is_telling:
                self._connector.leave(connection)
            # A frozen server would not read a cancel request either: drop the connection, do not wait on it.
            connection.terminate()
            raise
        except asyncpg.ReadOnlySQLTransactionError:
            # It was demoted, or the name leads elsewhere by now.
            self._connector.leave(connection)
            connection.terminate()
            raise
        finally:
            self._pool.give_back(connection)

    async def _borrow(self) -> Session:
        while True:
            connection = await self._pool.borrow(self._timeout)
            if self._connector.is_current(connection):
                return connection
            connection.terminate()
            self._pool.give_back(connection)

    async def _fetch_in_transaction(
        self, connection: Session, statement: str, args: tuple[object, ...]
    ) -> Rows:
        """A pooler may give each transaction another session: what a statement needs goes into its own."""
        async with asyncio.timeout(self._timeout):
            await connection.execute(self._begin)
            try:
                rows = await connection.fetch(statement, *args)
            except Exception:
                if not connection.is_closed():
                    await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")
            return rows


class Database:
    """The connections of one server: hot transitions, heartbeats, reads, samples of the vitals and what else
    is seen at a glance, and one that finds out whether the database answers."""

    def __init__(self, dsn: str, metrics: Metrics | None = None, *, behind_pooler: bool = False) -> None:
        self.connector = connector = Connector(
            dsn, behind_pooler=behind_pooler, needed=tuning.connections_of_a_process(behind_pooler)
        )

        def connections(size: int, timeout: timedelta, plans: dict[str, str] | None = None) -> Connections:
            return Connections(connector, size=size, timeout=timeout, plans=plans, metrics=metrics)

        self.hot = connections(tuning.HOT_CONNECTIONS, tuning.STATEMENT_TIMEOUT, HOT_PLANS)
        self.beats = connections(tuning.HEARTBEAT_CONNECTIONS, tuning.STATEMENT_TIMEOUT, HOT_PLANS)
        self.reads = connections(tuning.READ_CONNECTIONS, tuning.READ_TIMEOUT, READ_PLANS)
        self.watch = connections(tuning.WATCH_CONNECTIONS, tuning.READ_TIMEOUT, HOT_PLANS)
        self.probe = connections(tuning.PROBE_CONNECTIONS, tuning.READY_TIMEOUT)

    @property
    def pools(self) -> dict[str, Connections]:
        return {
            "hot": self.hot,
            "beats": self.beats,
            "reads": self.reads,
            "watch": self.watch,
            "probe": self.probe,
        }

    async def close(self) -> None:
        for connections in self.pools.values():
            connections.close()
