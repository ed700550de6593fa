"""A primary and a standby that follows it, both of which a test may freeze, promote and demote."""

import asyncio
import os
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import asyncpg

from pulse_server.database.schema import apply_migrations
from tests.eventually import PATIENCE_SECONDS
from tests.postgres_cluster import FAST_SETTINGS
from tests.server.outage_postgres import OutagePostgres

_STANDBY = "second"
# A commit is answered once the standby has it too. Processes die here, not machines: fsync stays off.
_SYNCHRONOUS = FAST_SETTINGS | {"synchronous_commit": "on"}


def make_template(directory: Path) -> Path:
    """Make the data that both begin with, the schema in place. Returns where it is."""
    server = OutagePostgres(directory)
    server.start()
    asyncio.run(apply_migrations(server.dsn))
    server.close()
    return directory


class ReplicatedPostgres:
    """Both serve when the constructor returns.

    If they are synchronous, the first answers no commit that the second does not have. The second, once it is
    promoted, waits for no standby.
    """

    def __init__(self, directory: Path, template: Path, *, synchronous: bool = False) -> None:
        self._directories = directory / "first", directory / "second"
        for path in self._directories:
            _copy(template, path)
        settings = _SYNCHRONOUS if synchronous else FAST_SETTINGS
        self.first, self.second = (OutagePostgres(path, settings) for path in self._directories)
        self._make_standby(1, follows=self.first)
        if synchronous:
            self._add_settings(0, f"synchronous_standby_names = '{_STANDBY}'")
        self.first.start()
        self.second.start()

    def dsn(self, *order: OutagePostgres) -> str:
        """The address of both, in this order."""
        sockets = ",".join(_sockets_of(server) for server in order)
        return f"postgresql://pulse@/pulse?{urllib.parse.urlencode({'host': sockets, 'port': 5432})}"

    async def promote_second(self) -> None:
        assert await ask(self.second, "SELECT pg_promote()")

    async def first_becomes_read_only(self) -> None:
        """It answers as before, and takes no more writes, in sessions that are open neither."""
        await ask(self.first, "ALTER SYSTEM SET default_transaction_read_only = on")
        assert await ask(self.first, "SELECT pg_reload_conf()")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await ask(self.first, "SHOW transaction_read_only") == "off":  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)

    async def second_has_caught_up(self) -> None:
        """Return once the standby has all that the primary has now."""
        reached = await ask(self.first, "SELECT pg_current_wal_insert_lsn()")
        async with asyncio.timeout(PATIENCE_SECONDS):
            caught_up = "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn"
            while not await ask(self.second, caught_up, reached):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)

    async def second_is_synchronous(self) -> None:
        """Return once the primary waits for the standby: before that it answers alone."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = $1"
            while await ask(self.first, state, _STANDBY) != "sync":  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)

    def demote_first(self) -> None:
        """Start it again as a standby, as a failover manager does with a primary that returns."""
        self.first.thaw()
        self.first.stop()
        self._make_standby(0, follows=self.second)
        self.first.start()

    def close(self) -> None:
        for server in (self.first, self.second):
            server.close()

    def _make_standby(self, number: int, follows: OutagePostgres) -> None:
        (self._directories[number] / "postgres" / "standby.signal").touch()
        primary = f"host={_sockets_of(follows)} port=5432 user=pulse application_name={_STANDBY}"
        self._add_settings(number, f"primary_conninfo = '{primary}'")

    def _add_settings(self, number: int, line: str) -> None:
        with (self._directories[number] / "postgres" / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"{line}\n")


async def ask(server: OutagePostgres, question: str, *args: Any) -> Any:
    connection = await asyncpg.connect(server.dsn, timeout=60)
    try:
        return await connection.fetchval(question, *args)
    finally:
        await connection.close()


def _sockets_of(server: OutagePostgres) -> str:
    (directory,) = urllib.parse.parse_qs(urllib.parse.urlsplit(server.dsn).query)["host"]
    return directory


def _copy(source: Path, target: Path) -> None:
    """Copy the data of a server that is stopped, for the account that runs it."""
    shutil.copytree(source / "postgres", target / "postgres", symlinks=True)
    for path in (source, *source.rglob("*")):
        copy = target / path.relative_to(source)
        if copy.exists() and os.geteuid() == 0:
            owner = path.lstat()
            os.chown(copy, owner.st_uid, owner.st_gid, follow_symlinks=False)
