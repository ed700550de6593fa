"""The Postgres of a run: a cluster of its own that is killed, frozen and restarted while in use."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.parse
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from faults.audit import Connection
from faults.database_clock import DatabaseClock
from pulse_server.embedded.cluster import SUPERUSER, read_postmaster
from tests.postgres_cluster import FAST_SETTINGS
from tests.server.outage_postgres import OutagePostgres

# Processes are killed here, machines are not: what a commit wrote is safe with the operating system, without
# fsync. Five servers start at the beginning, each with up to 22 connections.
_SETTINGS = FAST_SETTINGS | {"synchronous_commit": "on", "autovacuum": "on", "max_connections": "150"}
# An ordinary owner of a database, as in production: its connections can be limited.
OWNER = "queue"
# What a session raises while the database is away. InternalClientError: it went away within a call.
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_PATIENCE_SECONDS = 60.0
_RETRY_SECONDS = 0.02


class Cluster:
    """Starting and stopping it runs in a thread: the run goes on meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._data = directory.resolve() / "postgres"
        self._postgres = OutagePostgres(directory, _SETTINGS)
        self.clock = DatabaseClock(directory.parent)
        # One thread for all: a start and a stop must not overlap.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres")

    @property
    def data(self) -> Path:
        """The data directory of Postgres."""
        return self._data

    @property
    def socket(self) -> Path:
        """The socket that it listens on, the same after each restart."""
        (directory,) = urllib.parse.parse_qs(urllib.parse.urlsplit(self._postgres.dsn).query)["host"]
        return Path(directory) / ".s.PGSQL.5432"

    async def open(self) -> None:
        """Start it, with an empty database and its owner."""
        self.clock.prepare()
        await self._in_thread(self._start)
        async with self.session(database=SUPERUSER) as connection:
            await connection.execute(f"CREATE ROLE {OWNER} LOGIN")
            await connection.execute(f"CREATE DATABASE {OWNER} OWNER {OWNER}")

    @asynccontextmanager
    async def session(self, user: str = SUPERUSER, database: str = OWNER) -> AsyncIterator[Connection]:
        """A superuser session, without proxy and without connection limit. Waits until it can connect."""
        connection = await self._connect(user, database)
        try:
            yield connection
        finally:
            connection.terminate()

    async def execute_surely(self, statement: str) -> None:
        """Execute it, however often the database is away: what heals a fault must not be left undone."""
        while True:
            try:
                async with self.session() as session:
                    await session.execute(statement)
                return
            except asyncpg.SyntaxOrAccessError:
                raise
            except AWAY:
                await asyncio.sleep(_RETRY_SECONDS)

    # ------------------------------------------------------------ what happens to it

    async def kill_postmaster(self) -> None:
        """SIGKILL the postmaster; its children notice and exit."""
        os.kill(self._postmaster(), signal.SIGKILL)
        await self._in_thread(self._postgres.stop)

    async def start_again(self) -> None:
        await self._in_thread(self._start)

    async def kill_backend(self, pid: int) -> None:
        """SIGKILL one backend; the postmaster ends all others and recovers. Returns once it serves."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        async with self.session():
            pass

    def freeze(self) -> None:
        self._postgres.freeze()

    def thaw(self) -> None:
        self._postgres.thaw()

    async def close(self) -> None:
        await self._in_thread(self._postgres.close)
        self._thread.shutdown()

    # ------------------------------------------------------------ how

    async def _connect(self, user: str, database: str) -> Connection:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                try:
                    return await asyncpg.connect(
                        host=str(self.socket.parent), port=5432, user=user, database=database
                    )
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await asyncio.sleep(_RETRY_SECONDS)

    def _start(self) -> None:
        with self.clock.preloaded():
            self._postgres.start()

    def _postmaster(self) -> int:
        server = read_postmaster(self._data)
        assert server is not None, "there is no postmaster"
        return server.pid

    async def _in_thread(self, action: Callable[[], None]) -> None:
        # Shielded from Ctrl-C: a start or a stop is always completed.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, action))
