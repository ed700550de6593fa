"""The connection pools: their sizes, planner settings and timeouts.

Connections are opened when they are needed, and lent for one statement at a time. The driver's own pool makes
two tasks per loan, which take a third of the time of a small statement. When a statement meets a lock, the
session that holds it is looked up: for the log, or for the answer to an operator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from time import monotonic, perf_counter
from typing import NamedTuple, TypeAlias

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.metrics import Metrics
from pulse_server.database.audit import recorded
from pulse_server.database.connector import Connector, DatabaseSession, HeldUp, begin_with, translated
from pulse_server.database.statements import Fetch, Rows, Work, statements


class Pool:
    def __init__(self, connect: Callable[[], Awaitable[DatabaseSession]], size: int) -> None:
        self._connect = connect
        self._loans = asyncio.Semaphore(size)
        self._idle: list[DatabaseSession] = []
        self._lent: set[DatabaseSession] = set()

    @property
    def opened(self) -> int:
        return len(self._idle) + len(self._lent)

    @property
    def busy(self) -> int:
        return len(self._lent)

    @property
    def is_free(self) -> bool:
        """Whether a loan would begin at once."""
        return not self._loans.locked()

    async def borrow(self, timeout: float) -> DatabaseSession:
        """A connection that is open. TimeoutError if none is free, or can be opened, in time."""
        if self._idle and not self._loans.locked():
            await self._loans.acquire()  # at once
            return self._lend() or await self._open(timeout)
        async with asyncio.timeout(timeout):
            await self._loans.acquire()
            return self._lend() or await self._open(timeout)

    def give_back(self, session: DatabaseSession) -> None:
        """Take a connection back, open or closed."""
        self._lent.discard(session)
        if not session.is_closed():
            self._idle.append(session)
        self._loans.release()

    def close(self) -> None:
        """Cut every connection, lent or not."""
        for session in (*self._idle, *self._lent):
            session.terminate()
        self._idle.clear()

    def _lend(self) -> DatabaseSession | None:
        while self._idle:
            # The last used session is the warmest, and has not been cut for being idle.
            session = self._idle.pop()
            if not session.is_closed():
                self._lent.add(session)
                return session
        return None

    async def _open(self, timeout: float) -> DatabaseSession:
        try:
            async with asyncio.timeout(timeout):
                session = await self._connect()
        except BaseException:
            self._loans.release()
            raise
        self._lent.add(session)
        return session


# Between two lines of the log: while a lock lasts, every statement may meet it.
LOGGED_EVERY = timedelta(seconds=10)
# Well within the shortest wait of a watched statement, and longer than nearly every one takes.
LOOK_AFTER = timedelta(milliseconds=50)
LOOK_AGAIN = timedelta(milliseconds=250)

# How long a server may have a task of all servers, such as retention: a step takes a second at most.
TASK_PATIENCE = timedelta(seconds=30)

_TASKS = "locks"

# Statements that lock whole tables, or the row of a task, with the tables: a session may have held another
# one for longer.
_TABLES = {
    **dict.fromkeys(("delete_expired", "completed_days"), _TASKS),
    **dict.fromkeys(("add_completed_days", "drop_completed_day"), "completed_jobs%"),
}

_SQL = statements("database/locks.sql")

log = logging.getLogger(__name__)


class LockHolders:
    def __init__(self) -> None:
        self._logged_at: float | None = None

    async def log(self, statement: str, patience: timedelta, fetch: Fetch) -> None:
        """Log the oldest session that has held a lock for this long. Without one nothing is logged."""
        now = monotonic()
        if self._logged_at is not None and now < self._logged_at + LOGGED_EVERY.total_seconds():
            return
        self._logged_at = now
        tables = _TABLES.get(statement, "%")
        if tables == _TASKS:
            patience = TASK_PATIENCE
        rows = await fetch(_SQL["lock_holders"], patience // timedelta(milliseconds=1), tables)
        for row in rows:
            log.warning("lock_met", extra={"statement": statement, **row})


Look: TypeAlias = Callable[[int], Awaitable[str]]
"""Returns the sessions that keep the session with this process id waiting, in words."""


class Blockers:
    """The sessions that were last seen to keep a statement waiting; empty if none did.

    Postgres names the blockers of a session only while it waits, so another session looks.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self.seen = ""

    @asynccontextmanager
    async def watched(self, pid: int) -> AsyncIterator[None]:
        """Look from time to time who blocks the session with this process id."""
        watching = asyncio.create_task(self._watch(pid))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self, pid: int) -> None:
        await asyncio.sleep(LOOK_AFTER.total_seconds())
        while True:
            with suppress(PulseError):
                self.seen = await self._look(pid)
            await asyncio.sleep(LOOK_AGAIN.total_seconds())


# Lists and look-ups: an operator's query may take longer than a claim.
READ_TIMEOUT = timedelta(seconds=15)
# A database that takes longer to answer `SELECT 1` cannot serve a worker either.
READY_TIMEOUT = timedelta(seconds=3)
# How long a change waits for a lock (ADR-0042). Our own statements hold locks for 30 ms at most.
# After this wait only the locked rows are skipped; the rest of the batch continues.
LOCK_PATIENCE = timedelta(milliseconds=100)
# The same for a change that is urgent, and is refused after it. It may meet a lock on the audit, one on its
# setting, and one on the row: all three together take less than a second.
HASTE = timedelta(milliseconds=300)

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
# For queries of operators. The planner chooses joins and custom plans, but must read jobs by an
# index: with statistics from a time when nothing was finished, a count of waiting jobs would read
# the whole table. docs/figures.md#lists-counts-and-watchers
READ_PLANS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
_SESSION = {"application_name": "pulsed", "timezone": "UTC"}


class PoolUse(NamedTuple):
    opened: int
    busy: int
    allowed: int


class Connections:
    """A few connections of one kind. A statement past its timeout is abandoned with its connection."""

    def __init__(
        self,
        connector: Connector,
        *,
        size: int,
        timeout: timedelta,
        lock_patience: timedelta | None = None,
        plans: dict[str, str] | None = None,
        metrics: Metrics | None = None,
        look: Look | None = None,
    ) -> None:
        """`look` finds the sessions that hold up a change; a refusal names them."""
        self._connector = connector
        self._size = size
        self._timeout = timeout.total_seconds()
        self._metrics = metrics or Metrics()
        self._lock_patience = lock_patience
        self._lock_holders = LockHolders()
        self._look = look
        settings = {
            "statement_timeout": str(_given_up_earlier(timeout)),
            **(plans or {}),
        }
        if lock_patience is not None:
            settings["lock_timeout"] = str(lock_patience // timedelta(milliseconds=1))
        # Settings of the session; behind a pooler, of each transaction. docs/figures.md#failover-and-poolers
        self._settings = _SESSION if connector.behind_pooler else _SESSION | settings
        self._begin = begin_with(connector.always | settings)
        whole = connector.always | settings if connector.behind_pooler else {}
        self._patient = whole | {"lock_timeout": "0"}
        self._begin_patiently = begin_with(self._patient)
        self._begin_hastily = begin_with(whole | {"lock_timeout": str(HASTE // timedelta(milliseconds=1))})
        # A live server ends a late statement by itself. A server that does not is frozen or cut
        # off. With a short timeout this does not follow.
        self._detects_moves = connector.has_alternatives and timeout >= tuning.STATEMENT_TIMEOUT
        self._pool = Pool(self._connect, size)

    async def fetch(self, name: str, statement: str, *args: object, if_locked: Work | None = None) -> Rows:
        """Run the statement and return its rows. Raises Unavailable if it fails or takes too long.

        A statement that waits past the lock timeout has changed nothing. Then `if_locked` runs
        instead, as in `transact`; without it the statement runs again, and waits.

        A change that an action makes runs in one transaction with the entry of the audit.
        """
        return await self._on_loan(name, partial(self._send, name, statement, args, if_locked))

    async def transact(self, name: str, work: Work, timeout: timedelta | None = None) -> Rows:
        """Run several statements in one transaction, which waits for locks; otherwise as `fetch`.

        With a timeout, it may take that long instead of the usual time.
        """
        begin, work = self._begin_patiently, recorded(name, (), work)
        if timeout is not None:
            begin = begin_with(self._patient | {"statement_timeout": str(_given_up_earlier(timeout))})
        return await self._on_loan(name, partial(self._run_watched, begin, work, timeout=timeout))

    async def fetch_hastily(self, name: str, statement: str, *args: object) -> Rows:
        """Run the statement, which waits for no lock for longer than HASTE; otherwise as `fetch`."""
        work = recorded(name, args, lambda fetch: fetch(statement, *args))
        try:
            return await self._on_loan(name, partial(self._run_watched, self._begin_hastily, work))
        except Unavailable as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                await self.log_lock_holder(name)
            raise

    async def log_lock_holder(self, name: str) -> None:
        """Log the session that holds the lock which a transaction of this name has met."""

        async def work(fetch: Fetch) -> Rows:
            await self._lock_holders.log(name, self._lock_patience or timedelta(), fetch)
            return []

        await self.transact("lock_holders", work)

    async def _on_loan(self, name: str, use: Callable[[DatabaseSession], Awaitable[Rows]]) -> Rows:
        began = perf_counter()
        try:
            with translated(name):
                return await self._lend(use)
        except PulseError as error:
            self._metrics.statement_failures.add(name)
            if isinstance(error.__cause__, asyncpg.DiskFullError):
                self._metrics.statements_without_space.add()
            raise
        finally:
            self._metrics.statement_time.observe(name, value=perf_counter() - began)

    @property
    def is_free(self) -> bool:
        """Whether a statement would begin at once."""
        return self._pool.is_free

    @property
    def use(self) -> PoolUse:
        """How many connections are open, in use, and allowed."""
        return PoolUse(self._pool.opened, self._pool.busy, self._size)

    def close(self) -> None:
        self._pool.close()

    async def _connect(self) -> DatabaseSession:
        return await self._connector.connect(settings=self._settings)

    async def _lend(self, use: Callable[[DatabaseSession], Awaitable[Rows]]) -> Rows:
        connection = await self._borrow()
        try:
            return await use(connection)
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, TimeoutError) and self._detects_moves:
                self._connector.leave(connection)
            # A frozen server would not read a cancel request either: drop the connection, do not wait on it.
            connection.terminate()
            raise
        except asyncpg.ReadOnlySQLTransactionError:
            # The host was demoted, or the name leads elsewhere by now.
            self._connector.leave(connection)
            connection.terminate()
            raise
        finally:
            self._pool.give_back(connection)

    async def _borrow(self) -> DatabaseSession:
        while True:
            connection = await self._pool.borrow(self._timeout)
            if self._connector.is_current(connection):
                return connection
            connection.terminate()
            self._pool.give_back(connection)

    async def _send(
        self,
        name: str,
        statement: str,
        args: tuple[object, ...],
        if_locked: Work | None,
        connection: DatabaseSession,
    ) -> Rows:
        def send(fetch: Fetch) -> Awaitable[Rows]:
            return fetch(statement, *args)

        work = recorded(name, args, send)
        try:
            # A pooler may use another session for each transaction: each one sets its settings.
            if work is not send or self._connector.behind_pooler:
                return await self._run(self._begin, work, connection)
            return await connection.fetch(statement, *args, timeout=self._timeout)
        except asyncpg.LockNotAvailableError:
            if if_locked is not None:
                work = recorded(name, args, if_locked)

            async def logged(fetch: Fetch) -> Rows:
                await self._lock_holders.log(name, self._lock_patience or timedelta(), fetch)
                return await work(fetch)

            return await self._run_watched(self._begin_patiently, logged, connection)

    async def _run_watched(
        self, begin: str, work: Work, connection: DatabaseSession, timeout: timedelta | None = None
    ) -> Rows:
        """Run the work. Raises HeldUp if it ends while other sessions keep it waiting."""
        if self._look is None:
            return await self._run(begin, work, connection, timeout)
        blockers = Blockers(self._look)

        async def seen(fetch: Fetch) -> Rows:
            pid = connection.get_server_pid()
            if self._connector.behind_pooler:
                ((pid,),) = await fetch("SELECT pg_backend_pid()")
            async with blockers.watched(pid):
                return await work(fetch)

        try:
            return await self._run(begin, seen, connection, timeout)
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, TimeoutError) as error:
            if not blockers.seen:
                raise
            if isinstance(error, TimeoutError):
                connection.terminate()  # its statement may still run
            raise HeldUp(blockers.seen) from error

    async def _run(
        self, begin: str, work: Work, connection: DatabaseSession, timeout: timedelta | None = None
    ) -> Rows:
        async with asyncio.timeout(timeout.total_seconds() if timeout else self._timeout):
            await connection.execute(begin)
            try:
                rows = await work(connection.fetch)
            except Exception:
                if not connection.is_closed():
                    await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")
            return rows


def _given_up_earlier(timeout: timedelta) -> int:
    """The timeout of a statement in the server, in milliseconds.

    A little earlier: a statement should rarely commit after its caller got UNAVAILABLE.
    """
    return int(timeout.total_seconds() * 900)


class Database:
    """The connections of one server: hot transitions, heartbeats, operators' actions, reads, samples of the
    vitals and the overview, and one that checks whether the database responds."""

    def __init__(
        self,
        dsn: str,
        metrics: Metrics | None = None,
        *,
        behind_pooler: bool = False,
        search_path: str | None = None,
    ) -> None:
        self.connector = connector = Connector(
            dsn,
            behind_pooler=behind_pooler,
            needed=tuning.connections_of_a_process(behind_pooler),
            search_path=search_path,
        )

        def connections(
            size: int,
            timeout: timedelta,
            plans: dict[str, str] | None = None,
            lock_patience: timedelta | None = None,
            look: Look | None = None,
        ) -> Connections:
            return Connections(
                connector,
                size=size,
                timeout=timeout,
                lock_patience=lock_patience,
                plans=plans,
                metrics=metrics,
                look=look,
            )

        def changes(size: int, look: Look | None = None) -> Connections:
            return connections(size, tuning.STATEMENT_TIMEOUT, HOT_PLANS, LOCK_PATIENCE, look)

        self.hot = changes(tuning.HOT_CONNECTIONS)
        self.beats = changes(tuning.HEARTBEAT_CONNECTIONS)
        self.operators = changes(tuning.OPERATOR_CONNECTIONS, self._blockers_of)
        self.reads = connections(tuning.READ_CONNECTIONS, READ_TIMEOUT, READ_PLANS, look=self._blockers_of)
        self.watch = connections(tuning.WATCH_CONNECTIONS, READ_TIMEOUT, HOT_PLANS)
        self.probe = connections(tuning.PROBE_CONNECTIONS, READY_TIMEOUT, look=self._blockers_of)

    @property
    def unhindered(self) -> Connections:
        """For an urgent change: the operators' connections, or others while these may all wait for locks."""
        pools = self.operators, self.probe, self.reads
        return next((pool for pool in pools if pool.is_free), self.operators)

    async def _blockers_of(self, pid: int) -> str:
        """The sessions that keep this one waiting, in words; empty if none does."""
        pools = self.probe, self.beats, self.reads
        pool = next((pool for pool in pools if pool.is_free), self.beats)
        ((blockers,),) = await pool.fetch("blockers_of", _SQL["blockers_of"], pid)
        return blockers or ""

    @property
    def pools(self) -> dict[str, Connections]:
        return {
            "hot": self.hot,
            "beats": self.beats,
            "operators": self.operators,
            "reads": self.reads,
            "watch": self.watch,
            "probe": self.probe,
        }

    async def close(self) -> None:
        for connections in self.pools.values():
            connections.close()
