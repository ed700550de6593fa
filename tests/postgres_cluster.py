"""A temporary Postgres cluster for a test run, and databases in it."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg

from pulse_server.embedded import EmbeddedPostgres

# Nothing here must survive a crash of the machine, and no vacuum may run while a plan is tested.
FAST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_connections": "300",
    "max_prepared_transactions": "10",
    # The order of commits, for audits.
    "track_commit_timestamp": "on",
}

# Of the queues of tests, so that a session without rights can be the one of a worker.
SECRET = bytes(range(32))

Answer = TypeVar("Answer")


class ThrowawayCluster:
    """A server in a temporary directory, which is removed with it."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pulse-tests-"))
        self._postgres = EmbeddedPostgres(self._directory / "cluster", settings=FAST_SETTINGS)
        try:
            self._postgres.start()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @property
    def dsn(self) -> str:
        """Where to connect: a maintenance database, as a superuser."""
        return self._postgres.dsn

    def stop(self) -> None:
        """Stop the server and remove every trace of it."""
        self._postgres.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class Databases:
    """Creates and drops databases from synchronous code, over one connection kept for the session."""

    def __init__(self, cluster_dsn: str) -> None:
        self._cluster_dsn = cluster_dsn
        # A loop of its own, never the current one, which belongs to pytest-asyncio.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._connection = self._runner.run(_connect(cluster_dsn))
        self._numbers = itertools.count(1)

    def create(self, template: str | None = None) -> str:
        """Create a database, empty or like the one that the template's DSN names. Returns its DSN."""
        name = f"pulse_test_{os.getpid()}_{next(self._numbers)}"
        source = f" TEMPLATE {_name_in(template)}" if template else ""
        self._runner.run(self._connection.execute(f"CREATE DATABASE {name}{source}"))
        parts = urllib.parse.urlsplit(self._cluster_dsn)
        return urllib.parse.urlunsplit(parts._replace(path=f"/{name}"))

    def drop(self, dsn: str) -> None:
        """Drop the database, and end the sessions in it."""
        drop = f"DROP DATABASE IF EXISTS {_name_in(dsn)} WITH (FORCE)"
        self._runner.run(self._connection.execute(drop))

    @contextmanager
    def temporary(self, template: str | None = None) -> Iterator[str]:
        """Create a database for the length of a block."""
        dsn = self.create(template)
        try:
            yield dsn
        finally:
            self.drop(dsn)

    def disconnect_all(self, dsn: str, *, but: asyncpg.Connection[asyncpg.Record]) -> None:
        """End every session in the database but one, and return once they are gone."""
        self._runner.run(self._disconnect_all(_name_in(dsn), but.get_server_pid()))

    async def _disconnect_all(self, name: str, but: int) -> None:
        sessions = "FROM pg_stat_activity WHERE datname = $1 AND pid <> $2"
        # The server itself polls for the end of a session every 100 ms only.
        end_all = f"SELECT count(pg_terminate_backend(pid)) {sessions}"
        async with asyncio.timeout(60):
            while await self._connection.fetchval(end_all, name, but):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    def run(self, action: Coroutine[None, None, Answer]) -> Answer:
        """Run an asynchronous action on a database, such as its migrations. Returns its answer."""
        return self._runner.run(action)

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._connection.close())
        self._runner.close()


async def set_secret(dsn: str) -> None:
    """Give the queue of this database the secret of the tests."""
    connection = await _connect(dsn)
    await connection.execute("UPDATE pulse.cluster_secret SET secret = $1, previous = NULL", SECRET)
    await connection.close()


async def _connect(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(dsn, timeout=60, command_timeout=60)


def _name_in(dsn: str) -> str:
    return urllib.parse.urlsplit(dsn).path.removeprefix("/")
